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
	"syscall"
	"testing"
	"time"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/bmv2test"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
)

// TestAgainstBMv2 runs the project's own STF files on BMv2, if it is installed, and compares every
// frame with those of the interp engine. BMv2 reads and writes the frames of its ports as pcap
// files, so it needs no privileges and no network interfaces.
func TestAgainstBMv2(t *testing.T) {
	binary, err := exec.LookPath("simple_switch_grpc")
	if err != nil {
		t.Skipf("BMv2 is not installed: %v", err)
	}
	for _, p := range programs(t) {
		text, err := os.ReadFile(p + ".stf")
		if err != nil {
			continue // a Go test runs this program
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

// bmv2Differs has the frames that BMv2 is known to send differently. For each program, it maps the
// number of the packet, from 0, to BMv2's frame.
var bmv2Differs = map[string]map[int]string{
	// In BMv2, assign_header also copies the hidden field $valid$. The member that it copies has
	// just become invalid, because only one member of a union is valid at a time. So isValid is
	// false for the member that the deparser sends.
	"unions": {0: "0100000000000000000000000000abcdeeee"},
}

// forBMv2 removes commands that BMv2 does not support over P4Runtime (registers, value sets) and
// commands that depend on the clock (meters). It also removes the packets after these commands
// until the state is equal again.
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
	told := &events{}
	p, err := interp.New(prog, interp.Options{Events: told})
	if err != nil {
		t.Fatal(err)
	}
	ours := map[uint32][][]byte{}
	var after []map[uint32]int // number of frames that each port has sent so far, after each packet
	var steps []int            // number of steps that were reported so far, after each packet
	sw := stf.Interp(p)
	process := sw.Process
	count := 0
	sw.Process = func(now time.Duration, port uint32, frame []byte) []stf.Packet {
		out := process(now, port, frame)
		count += len(out)
		for _, o := range out {
			ours[o.Port] = append(ours[o.Port], o.Frame)
		}
		sent := map[uint32]int{}
		for port, frames := range ours {
			sent[port] = len(frames)
		}
		after = append(after, sent)
		steps = append(steps, stepsOf(told.all))
		return out
	}
	if _, err := stf.Run(f, sw); err != nil {
		t.Fatal(err)
	}
	b := startBMv2(t, binary, program, prog, f)
	b.expected, b.steps = after, steps
	if _, err := stf.Run(f, stf.Switch{Pipeline: b, Process: b.send}); err != nil {
		t.Fatalf("on BMv2: %v", err)
	}
	theirs := b.collect(t, count)
	otherwise := map[uint64]bool{}
	for packet, frame := range bmv2Differs[filepath.Base(program)] {
		otherwise[uint64(packet)] = true
		for port := range after[packet] {
			at := after[packet][port] - 1
			if got := theirs[port]; at >= len(got) || fmt.Sprintf("%x", got[at]) != frame {
				t.Errorf("BMv2 does not send %s for packet %d, as it is listed", frame, packet)
				continue
			}
			theirs[port][at] = ours[port][at]
		}
	}
	for port := range b.outputs {
		x, y := ours[port], theirs[port]
		// BMv2 has several egress threads, and the port through which a packet leaves selects the
		// thread. If egress makes copies of a packet's copies, and they leave through one port,
		// their order is arbitrary.
		from := 0
		for _, sent := range after {
			sortFrames(x[min(from, len(x)):min(sent[port], len(x))])
			sortFrames(y[min(from, len(y)):min(sent[port], len(y))])
			from = sent[port]
		}
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
	told.compare(t, b.events, otherwise)
	t.Logf("%d frames alike", count)
}

func sortFrames(frames [][]byte) { slices.SortFunc(frames, bytes.Compare) }

// process is a running simple_switch_grpc whose ports are pcap files.
type process struct {
	*bmv2test.Pipeline
	dir     string
	inputs  map[uint32]*os.File
	outputs map[uint32]string
	command *exec.Cmd
	events  *subscription
	// expected is the number of frames that must have left each port after each packet. sent is the
	// number of packets that were sent so far. steps is the number of steps that BMv2 must have
	// reported.
	expected []map[uint32]int
	steps    []int
	sent     int
}

func startBMv2(t *testing.T, binary, program string, prog *bmv2json.Program, f *stf.File) *process {
	t.Helper()
	b := &process{dir: t.TempDir(), inputs: map[uint32]*os.File{}, outputs: map[uint32]string{}}
	info := &configv1.P4Info{}
	if err := prototext.Unmarshal(read(t, program+".p4info.txtpb"), info); err != nil {
		t.Fatal(err)
	}
	addr := bmv2test.FreeAddress(t)
	args := append(bmv2test.ThriftFlags(t, binary, bmv2test.FreeAddress(t)), "--use-files", "0", "--log-level", "off", "--device-id", "0",
		"--nanolog", "ipc://"+filepath.Join(b.dir, "events"))
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
	b.command = exec.Command(binary, args...)
	var log bytes.Buffer
	b.command.Stdout, b.command.Stderr = &log, &log
	if err := b.command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, f := range b.inputs {
			f.Close()
		}
		b.command.Process.Kill()
		b.command.Wait()
		if t.Failed() {
			t.Logf("BMv2 said: %s", log.String())
		}
	})
	// The switch opens these files in this order, and waits for each file.
	for _, port := range ports {
		in, err := os.OpenFile(filepath.Join(b.dir, fmt.Sprint(port)+"_in.pcap"), os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.inputs[port] = in
		header := binary4(0xa1b2c3d4, 4<<16|2, 0, 0, 65535, 1)
		if _, err := in.Write(header); err != nil {
			t.Fatal(err)
		}
		// The switch processes the earliest packet of all its files. So it waits for a packet in
		// each file that has not ended.
		if port != from {
			in.Close()
		}
	}
	b.events = subscribe(t, filepath.Join(b.dir, "events"))
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	// BMv2 is already running the program, but accepts entries only after the program was pushed
	// again.
	if b.Pipeline, err = bmv2test.Connect(ctx, conn, 0, read(t, program+".json"), prog, info,
		nil); err != nil {
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

// send writes a frame into the pcap file of a port. collect reads the outgoing frames at the end.
func (b *process) send(_ time.Duration, port uint32, frame []byte) []stf.Packet {
	record := append(binary4(0, 0, uint32(len(frame)), uint32(len(frame))), frame...)
	if _, err := b.inputs[port].Write(record); err != nil {
		panic(err)
	}
	// BMv2 must process this frame before anything else changes. So send waits until the expected
	// frames have left, and all steps have been reported, including those of dropped packets. A
	// BMv2 that reports no steps gets a short time.
	time.Sleep(5 * time.Millisecond)
	for deadline := time.Now().Add(10 * time.Second); !b.done() && time.Now().Before(deadline); {
		time.Sleep(5 * time.Millisecond)
	}
	b.sent++
	return nil
}

// done reports whether BMv2 has finished with the packet, which means that it has sent and reported
// as much as the interpreter.
func (b *process) done() bool {
	steps := b.events.steps()
	return b.left(b.expected[b.sent]) && (steps >= b.steps[b.sent] || steps == 0 && b.sent > 0)
}

// left reports whether at least this many frames have left each port.
func (b *process) left(want map[uint32]int) bool {
	for port, n := range want {
		if frames, err := readPcap(b.outputs[port]); err != nil || len(frames) < n {
			return false
		}
	}
	return true
}

// collect reads the outgoing frames once the expected number has left and some more time has
// passed.
func (b *process) collect(t *testing.T, want int) map[uint32][][]byte {
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

// readPcap reads the frames of a pcap file. If the file is not completely written, readPcap returns
// the complete frames.
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
