package stf_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/internal/testport"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// TestAgainstBMv2 runs the project's own STF files on BMv2, where it is installed, and compares every frame with what the interp engine says. BMv2 reads
// and writes its ports as pcap files, so that no privilege and no network interface is needed.
func TestAgainstBMv2(t *testing.T) {
	binary, err := exec.LookPath("simple_switch_grpc")
	if err != nil {
		t.Skipf("BMv2 is not installed: %v", err)
	}
	for _, p := range programs(t) {
		text, err := os.ReadFile(p + ".stf")
		if err != nil {
			continue // driven by a Go test
		}
		t.Run(filepath.Base(p), func(t *testing.T) {
			f, err := stf.Parse(p+".stf", text)
			if err != nil {
				t.Fatal(err)
			}
			compareWithBMv2(t, binary, p, forBMv2(f))
		})
	}
}

// forBMv2 leaves out what BMv2 does not have over P4Runtime (registers, value sets) or what depends on the clock (meters), with the packets that follow
// until the state is as before.
func forBMv2(f *stf.File) *stf.File {
	part := &stf.File{Name: f.Name}
	skip := false
	for _, c := range f.Commands {
		switch c.Verb {
		case "register_write", "meter_set_rates", "value_set":
			skip = c.Verb != "value_set" || len(c.Members) > 0
			continue
		case "register_reset":
			skip = false
			continue
		case "check_register", "counter_write", "check_counter", "clock", "no_packet":
			continue
		case "add", "setdefault":
			skip = false
		case "packet":
			if skip {
				continue
			}
		}
		part.Commands = append(part.Commands, c)
	}
	return part
}

func compareWithBMv2(t *testing.T, binary, program string, f *stf.File) {
	t.Helper()
	prog, err := bmv2json.ReadFile(program + ".json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := interp.New(prog, interp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[uint32][][]byte{}
	sw := stf.Interp(p)
	process := sw.Process
	count := 0
	sw.Process = func(now time.Duration, port uint32, frame []byte) []stf.Packet {
		out := process(now, port, frame)
		count += len(out)
		for _, o := range out {
			ours[o.Port] = append(ours[o.Port], o.Frame)
		}
		return out
	}
	if _, err := stf.Run(f, sw); err != nil {
		t.Fatal(err)
	}
	b := startBMv2(t, binary, program, f)
	b.pipeline = p
	if _, err := stf.Run(f, stf.Switch{Pipeline: b, Process: b.send}); err != nil {
		t.Fatalf("on BMv2: %v", err)
	}
	theirs := b.collect(t, count)
	for port := range b.outputs {
		x, y := ours[port], theirs[port]
		for i := range max(len(x), len(y)) {
			switch {
			case i >= len(x):
				t.Errorf("port %d: BMv2 sent a frame more: %x", port, y[i])
			case i >= len(y):
				t.Errorf("port %d: BMv2 did not send frame %d: %x", port, i, x[i])
			case !bytes.Equal(x[i], y[i]):
				t.Errorf("port %d: frame %d\n interp %x\n BMv2   %x", port, i, x[i], y[i])
			}
		}
	}
	t.Logf("%d frames alike", count)
}

// bmv2 is a running simple_switch_grpc, as far as it is needed: packets in and out by pcap files, entries and groups over P4Runtime. What it does not
// implement of target.Pipeline is left to the nil interface, and would panic; split leaves such commands out.
type bmv2 struct {
	target.Pipeline
	pipeline target.Pipeline // the same program on interp, for what is only looked up
	dir      string
	inputs   map[uint32]*os.File
	outputs  map[uint32]string
	client   p4v1.P4RuntimeClient
	info     *configv1.P4Info
	ids      map[string]uint32
	groups   map[uint32][]target.Replica
	process  *exec.Cmd
}

func startBMv2(t *testing.T, binary, program string, f *stf.File) *bmv2 {
	t.Helper()
	b := &bmv2{dir: t.TempDir(), inputs: map[uint32]*os.File{}, outputs: map[uint32]string{}, info: &configv1.P4Info{}, ids: map[string]uint32{}, groups: map[uint32][]target.Replica{}}
	if err := prototext.Unmarshal(read(t, program+".p4info.txtpb"), b.info); err != nil {
		t.Fatal(err)
	}
	b.index()
	addr := testport.Free(t)
	args := []string{"--use-files", "0", "--log-level", "off", "--device-id", "0"}
	ports := []uint32{0, 1, 2, 3, 4, 5, 6}
	from := ports[0]
	for _, c := range f.Commands {
		if c.Verb == "packet" {
			from = c.Port
		}
	}
	for _, port := range ports {
		base := filepath.Join(b.dir, fmt.Sprint(port))
		if err := syscall.Mkfifo(base+"_in.pcap", 0o600); err != nil {
			t.Fatal(err)
		}
		b.outputs[port] = base + "_out.pcap"
		args = append(args, "-i", fmt.Sprintf("%d@%s", port, base))
	}
	args = append(args, program+".json", "--", "--grpc-server-addr", addr)
	b.process = exec.Command(binary, args...)
	var log bytes.Buffer
	b.process.Stdout, b.process.Stderr = &log, &log
	if err := b.process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range b.inputs {
			f.Close()
		}
		b.process.Process.Kill()
		b.process.Wait()
		if t.Failed() {
			t.Logf("BMv2 said: %s", log.String())
		}
	})
	for _, port := range ports { // the switch opens them in this order, and waits for each
		in, err := os.OpenFile(filepath.Join(b.dir, fmt.Sprint(port)+"_in.pcap"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.inputs[port] = in
		header := binary4(0xa1b2c3d4, 4<<16|2, 0, 0, 65535, 1)
		if _, err := in.Write(header); err != nil {
			t.Fatal(err)
		}
		// The switch takes the earliest packet of all its files, and so waits for one in each that has not ended.
		if port != from {
			in.Close()
		}
	}
	b.connect(t, addr)
	if err := b.push(read(t, program+".json")); err != nil {
		t.Fatal(err)
	}
	return b
}

func binary4(words ...uint32) []byte {
	var out []byte
	for _, w := range words {
		out = binary.LittleEndian.AppendUint32(out, w)
	}
	return out
}

func (b *bmv2) index() {
	for _, t := range b.info.Tables {
		b.ids[t.Preamble.Name] = t.Preamble.Id
		for _, m := range t.MatchFields {
			b.ids[t.Preamble.Name+" "+m.Name] = m.Id
		}
	}
	for _, a := range b.info.Actions {
		b.ids[a.Preamble.Name] = a.Preamble.Id
	}
}

func (b *bmv2) connect(t *testing.T, addr string) {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	b.client = p4v1.NewP4RuntimeClient(conn)
	stream, err := b.client.StreamChannel(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	arbitration := &p4v1.StreamMessageRequest{Update: &p4v1.StreamMessageRequest_Arbitration{
		Arbitration: &p4v1.MasterArbitrationUpdate{ElectionId: &p4v1.Uint128{Low: 1}}}}
	if err := stream.Send(arbitration); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
}

// push pushes the pipeline, which BMv2 has, again: it needs that before it takes entries over P4Runtime.
func (b *bmv2) push(program []byte) error {
	_, err := b.client.SetForwardingPipelineConfig(context.Background(), &p4v1.SetForwardingPipelineConfigRequest{
		ElectionId: &p4v1.Uint128{Low: 1},
		Action:     p4v1.SetForwardingPipelineConfigRequest_VERIFY_AND_COMMIT,
		Config:     &p4v1.ForwardingPipelineConfig{P4Info: b.info, P4DeviceConfig: program},
	})
	return err
}

func (b *bmv2) write(kind p4v1.Update_Type, e *p4v1.Entity) error {
	_, err := b.client.Write(context.Background(), &p4v1.WriteRequest{
		ElectionId: &p4v1.Uint128{Low: 1}, Updates: []*p4v1.Update{{Type: kind, Entity: e}},
	})
	return err
}

func (b *bmv2) Program() *bmv2json.Program { return b.pipeline.Program() }

func (b *bmv2) entry(table string, e *target.TableEntry) *p4v1.Entity {
	t := b.Program().Table(table)
	out := &p4v1.TableEntry{TableId: b.ids[table], Priority: int32(e.Priority)}
	for i, m := range e.Match {
		k := t.Keys[i]
		f := &p4v1.FieldMatch{FieldId: b.ids[table+" "+k.Name]}
		kind := k.Kind
		for _, ti := range b.info.Tables { // an optional key is a ternary one in the JSON
			for _, mf := range ti.MatchFields {
				if ti.Preamble.Name == table && mf.Name == k.Name && mf.GetMatchType() == configv1.MatchField_OPTIONAL {
					kind = bmv2json.MatchOptional
				}
			}
		}
		switch kind {
		case bmv2json.MatchExact:
			f.FieldMatchType = &p4v1.FieldMatch_Exact_{Exact: &p4v1.FieldMatch_Exact{Value: m.Value}}
		case bmv2json.MatchLPM:
			if m.PrefixLen == 0 {
				continue
			}
			f.FieldMatchType = &p4v1.FieldMatch_Lpm{Lpm: &p4v1.FieldMatch_LPM{Value: m.Value, PrefixLen: int32(m.PrefixLen)}}
		case bmv2json.MatchTernary:
			if zeros(m.Mask) {
				continue
			}
			v := slices.Clone(m.Value)
			for j := range v {
				v[j] &= m.Mask[j]
			}
			f.FieldMatchType = &p4v1.FieldMatch_Ternary_{Ternary: &p4v1.FieldMatch_Ternary{Value: v, Mask: m.Mask}}
		case bmv2json.MatchOptional:
			if zeros(m.Mask) {
				continue
			}
			f.FieldMatchType = &p4v1.FieldMatch_Optional_{Optional: &p4v1.FieldMatch_Optional{Value: m.Value}}
		case bmv2json.MatchRange:
			f.FieldMatchType = &p4v1.FieldMatch_Range_{Range: &p4v1.FieldMatch_Range{Low: m.Value, High: m.Mask}}
		}
		out.Match = append(out.Match, f)
	}
	a := &p4v1.Action{ActionId: b.ids[e.Action.Action]}
	for i, p := range e.Action.Params {
		a.Params = append(a.Params, &p4v1.Action_Param{ParamId: uint32(i + 1), Value: p})
	}
	out.Action = &p4v1.TableAction{Type: &p4v1.TableAction_Action{Action: a}}
	return &p4v1.Entity{Entity: &p4v1.Entity_TableEntry{TableEntry: out}}
}

func zeros(b []byte) bool { return strings.Trim(string(b), "\x00") == "" }

func (b *bmv2) InsertEntry(table string, e *target.TableEntry) error {
	return b.write(p4v1.Update_INSERT, b.entry(table, e))
}

func (b *bmv2) SetDefault(table string, e *target.TableEntry) error {
	x := b.entry(table, e)
	x.GetTableEntry().IsDefaultAction = true
	return b.write(p4v1.Update_MODIFY, x)
}

func replicas(rs []target.Replica) (out []*p4v1.Replica) {
	for _, r := range rs {
		//lint:ignore SA1019 BMv2 does not know Replica.port, which is to replace it
		kind := &p4v1.Replica_EgressPort{EgressPort: r.Port}
		out = append(out, &p4v1.Replica{PortKind: kind, Instance: uint32(r.Instance)})
	}
	return out
}

func (b *bmv2) MulticastGroups() map[uint32][]target.Replica { return b.groups }

func (b *bmv2) SetMulticastGroup(id uint32, rs []target.Replica) error {
	b.groups[id] = rs
	kind := p4v1.Update_MODIFY
	if len(rs) == 0 {
		kind = p4v1.Update_INSERT
	}
	return b.write(kind, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{MulticastGroupEntry: &p4v1.MulticastGroupEntry{MulticastGroupId: id, Replicas: replicas(rs)}}}}})
}

func (b *bmv2) SetCloneSession(id uint32, s *target.CloneSession) error {
	return b.write(p4v1.Update_INSERT, &p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{PacketReplicationEngineEntry: &p4v1.PacketReplicationEngineEntry{
		Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{CloneSessionEntry: &p4v1.CloneSessionEntry{SessionId: id, Replicas: replicas(s.Replicas)}}}}})
}

// send puts a frame into the port's pcap file; what leaves is collected at the end.
func (b *bmv2) send(_ time.Duration, port uint32, frame []byte) []stf.Packet {
	record := append(binary4(0, 0, uint32(len(frame)), uint32(len(frame))), frame...)
	if _, err := b.inputs[port].Write(record); err != nil {
		panic(err)
	}
	// The switch works the ports off one after the other: let it take this frame, and do with it what it does, before the next thing changes.
	time.Sleep(5 * time.Millisecond)
	return nil
}

// collect reads what left, when as many frames have as are expected, and a while after.
func (b *bmv2) collect(t *testing.T, want int) map[uint32][][]byte {
	t.Helper()
	var out map[uint32][][]byte
	deadline := time.Now().Add(10 * time.Second)
	for settled := false; ; {
		out = map[uint32][][]byte{}
		n := 0
		for port, file := range b.outputs {
			frames, err := readPcap(file)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			out[port] = frames
			n += len(frames)
		}
		if settled || time.Now().After(deadline) {
			return out
		}
		settled = n >= want
		time.Sleep(200 * time.Millisecond)
	}
}

// readPcap reads the frames of a pcap file; one that is not yet written out to its end has fewer.
func readPcap(file string) ([][]byte, error) {
	f, err := os.Open(file)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r := bufio.NewReader(f)
	var head [24]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, nil
	}
	var out [][]byte
	for {
		var rec [16]byte
		if _, err := io.ReadFull(r, rec[:]); err != nil {
			return out, nil
		}
		frame := make([]byte, binary.LittleEndian.Uint32(rec[8:]))
		if _, err := io.ReadFull(r, frame); err != nil {
			return out, nil
		}
		out = append(out, frame)
	}
}
