package p4src

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/chip"
	"github.com/netcraq/netcraq/controlplane/p4rt"
	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestChip runs the scenarios on the chip's tables and registers (include/chip), placed between the
// blocks of v1model. testdata/chip.txt lists each packet whose result differs from the transcript,
// and explains the intended differences. The flag -rewrite writes the lists again.
func TestChip(t *testing.T) {
	text, err := bmv2json.Text("chip/compiled/netcraq_chip.json.gz")
	check(t, err)
	p4info, err := os.ReadFile("chip/compiled/netcraq_chip.p4info.txtpb")
	check(t, err)
	open := func(t *testing.T, _ int) device {
		return &chipDevice{interpreter: interpreterOf(t, text, p4info), leases: map[uint64]uint64{}}
	}
	compared := map[string]bool{}
	packets := 0
	datadriven.RunTest(t, "testdata/chip.txt", func(t *testing.T, d *datadriven.TestData) string {
		name := joinArgs(d)
		compared[name] = true
		s := &scenario{open: open}
		var out strings.Builder
		s.compare(t, &out, "testdata/scenarios/"+name+".txt")
		packets += s.sent
		if out.Len() == 0 {
			return "none\n"
		}
		return out.String()
	})
	for _, name := range chipScenarios(t) {
		if !compared[name] {
			t.Errorf("testdata/chip.txt does not name the scenario %s", name)
		}
	}
	if packets < 500 {
		t.Errorf("the scenarios send %d packets to the chip's program: fewer than 500", packets)
	}
}

// compare runs a scenario file on the v1model program and on s. It writes to out each line whose
// outcome differs between the two.
func (s *scenario) compare(t *testing.T, out *strings.Builder, file string) {
	s.names = eventNames(t)
	model := &scenario{names: s.names, open: func(t *testing.T, profile int) device {
		return newInterpreter(t, profile, nil)
	}}
	datadriven.RunTest(t, file, func(t *testing.T, d *datadriven.TestData) string {
		for _, line := range commandLines(d) {
			want, got := model.outcome(t, line), s.outcome(t, line)
			if want != got {
				fmt.Fprintf(out, "%s\n  v1model: %s\n  chip:    %s\n", line, indent(want), indent(got))
			}
		}
		return d.Expected
	})
}

// outcome returns a command's transcript, or its error as text.
func (s *scenario) outcome(t *testing.T, line string) string {
	var out strings.Builder
	if err := s.command(t, &out, line); err != nil {
		fmt.Fprintf(&out, "error: %v\n", err)
	}
	return strings.TrimSpace(out.String())
}

func indent(text string) string { return strings.ReplaceAll(text, "\n", "\n         ") }

// chipDevice runs the chip's P4 program. It accepts table entries and packets for the v1model
// program, and converts them. Scenarios use epochs of 16 bits and times in microseconds, and the
// chip uses other units.
type chipDevice struct {
	*interpreter
	leases map[uint64]uint64 // the port to which each session is leased
	clock  time.Duration     // offset that is added to the clock value in a LEASE packet
}

func (d *chipDevice) set(e p4rt.Entry) error {
	if e.Action == "leased_to" {
		session := e.Match["session"].Value.(uint64)
		if _, leased := d.leases[session]; leased {
			if err := d.remove(p4rt.Entry{Table: e.Table, Match: e.Match, Action: e.Action}); err != nil {
				return err
			}
		}
		d.leases[session] = e.Params["port"].(uint64)
	}
	entry, err := chip.Entry(e)
	if err != nil {
		return err
	}
	return d.interpreter.set(entry)
}

func (d *chipDevice) remove(e p4rt.Entry) error {
	if e.Action == "leased_to" {
		e.Params = p4rt.Params{"port": d.leases[e.Match["session"].Value.(uint64)]}
		delete(d.leases, e.Match["session"].Value.(uint64))
	}
	if e.Action == "set_chain" || e.Action == "set_slot" {
		e.Action = "" // the action does not matter when an entry is deleted
	}
	entry, err := chip.Entry(e)
	if err != nil {
		return err
	}
	return d.interpreter.remove(entry)
}

func (d *chipDevice) rate(port uint32, packets int64) error {
	return d.pipeline.WriteMeter("NetcraqIngress.pipeline.port.host_rate", int(port), packetsAtOnce(packets))
}

func (d *chipDevice) send(port uint32, frame []byte) ([]output, error) {
	header := 0
	if port == controllerPort {
		header = 2
	}
	if err := d.toChip(frame[header:]); err != nil {
		return nil, err
	}
	out, err := d.interpreter.send(port, frame)
	for _, o := range out {
		frame := o.frame
		if o.port == controllerPort {
			frame = frame[2:]
		}
		fromChip(frame)
	}
	return out, err
}

// netcraqAt is the position of the NetCRAQ header in a frame without IPv4 options.
const netcraqAt = 14 + 20 + 8

// hasHeader reports whether a switch's parser finds a NetCRAQ header in the frame. The frame must
// be IPv4 without options, not a fragment, and UDP.
func hasHeader(frame []byte) bool {
	return len(frame) >= netcraqAt+24 && frame[12] == 8 && frame[13] == 0 && frame[14] == 0x45 &&
		frame[20]&0x3F == 0 && frame[21] == 0 && frame[23] == 17
}

// toChip converts the version in a frame, and the times in a LEASE, to the chip's format.
func (d *chipDevice) toChip(frame []byte) error {
	if !hasHeader(frame) {
		return nil
	}
	header := frame[netcraqAt:]
	version := wire.Version(binary.BigEndian.Uint64(header[16:]))
	if wire.Op(header[0]) == wire.Lease {
		request := time.Duration(binary.BigEndian.Uint32(header[8:])) * time.Microsecond
		if request > chip.MaxLease {
			request = chip.MaxLease / 2
		}
		if request > 0 {
			request = max(request, 64*time.Microsecond)
		}
		binary.BigEndian.PutUint32(header[8:], uint32(request/(64*time.Microsecond)))
		clock := time.Duration(version)*time.Microsecond + d.clock
		binary.BigEndian.PutUint64(header[16:], uint64(uint32(clock/(64*time.Microsecond))))
		return nil
	}
	if version.Sequence() == wire.MaxSequence {
		version = wire.MakeVersion(version.Epoch(), chip.MaxSequence)
	}
	v, err := chip.Version(version)
	if err != nil {
		return fmt.Errorf("this scenario cannot run on a chip: %w", err)
	}
	binary.BigEndian.PutUint64(header[16:], uint64(v))
	return nil
}

// fromChip converts the version in a frame from the chip's format.
func fromChip(frame []byte) {
	if !hasHeader(frame) {
		return
	}
	header := frame[netcraqAt:]
	if wire.Op(header[0]) == wire.LeaseReply {
		return
	}
	version := chip.WireVersion(uint32(binary.BigEndian.Uint64(header[16:])))
	if version.Sequence() == chip.MaxSequence {
		version = wire.MakeVersion(version.Epoch(), wire.MaxSequence)
	}
	binary.BigEndian.PutUint64(header[16:], uint64(version))
}

// chipEntriesNotMatched is the number of table entries that no scenario matches. Four of them are
// for the end of an epoch's sequence, which TestChipSequence reaches. Lower this number whenever a
// new scenario matches more entries.
const chipEntriesNotMatched = 10

// TestChipSequence writes a key when the sequence of its epoch is used up. The head must not assign
// a version of the next epoch. It must accept writes again when the chain has a new epoch.
func TestChipSequence(t *testing.T) {
	s := chipAlone(t)
	s.commands(t, "chain 1 role=HEAD_TAIL epoch=5 head=10.0.200.2 tail=10.0.200.2 service=10.0.100.1",
		"send 510 SYNC key=0x01000001 version=5.16777213 value=a from=169.254.78.67:4000")
	for _, c := range []struct{ command, want string }{
		{"send 1 WRITE key=0x01000001 value=last", "WRITE_COMMITTED"},
		{"send 1 WRITE key=0x01000001 value=more", "OUTDATED"},
		{"send 1 CAS key=0x01000001 version=5.16777214 value=more", "OUTDATED"},
		// the chip's last sequence is reported as the last sequence of the protocol
		{"send 1 READ key=0x01000001", `version=5.281474976710655 value="last"`},
		{"chain 1 role=HEAD_TAIL epoch=6 head=10.0.200.2 tail=10.0.200.2 service=10.0.100.1", ""},
		{"send 1 WRITE key=0x01000001 value=next", `version=6.1 value="next"`},
	} {
		if got := s.outcome(t, c.command); !strings.Contains(got, c.want) {
			t.Errorf("%s: got %s\nwant %s", c.command, got, c.want)
		}
	}
}

// TestChipClock reads under a lease while the chip's clock wraps around. It also reads when the
// clock reaches the end of an old lease a second time.
func TestChipClock(t *testing.T) {
	// the time in which the clock of chip/netcraq_chip.p4 wraps around
	const round = (1 << 32) * 64 * time.Microsecond
	read := "send 1 READ key=0x01000001"
	lease := "send 510 LEASE key=0x01000000 epoch=5 request=%d from=169.254.78.67:4000"
	s := chipAlone(t)
	s.commands(t, "chain 1 role=TAIL epoch=5 lease head=10.0.200.1 tail=10.0.200.2 service=10.0.100.1")
	device := s.device.(*chipDevice)
	expect := func(when string, now time.Duration, command, want string) {
		t.Helper()
		device.now = now
		if got := s.outcome(t, command); !strings.HasPrefix(got, want) {
			t.Errorf("%s, at %v: %s: got %s, want %s", when, now, command, got, want)
		}
	}
	renew := func(now, duration time.Duration) string {
		device.clock = now
		return fmt.Sprintf(lease, duration.Microseconds())
	}
	expect("before any lease", time.Hour, read, "NOT_SERVING")
	expect("", time.Hour, renew(time.Hour, 10*time.Second), "LEASE_RENEWED")
	expect("with a lease", time.Hour+9*time.Second, read, "READ_NOT_FOUND")
	expect("after it", time.Hour+11*time.Second, read, "NOT_SERVING")
	expect("a round later, as the clock was when it had a lease", round+time.Hour+9*time.Second, read, "NOT_SERVING")
	expect("", round-time.Second, renew(round-time.Second, 10*time.Second), "LEASE_RENEWED")
	expect("over the end of the round", round+time.Second, renew(round+time.Second, 10*time.Second), "LEASE_RENEWED")
	expect("renewed after it", round+2*time.Second, read, "READ_NOT_FOUND")
}

// chipAlone returns a scenario with one switch that runs the chip's program. The switch has a host
// at port 1 and a key.
func chipAlone(t *testing.T) *scenario {
	t.Helper()
	text, err := bmv2json.Text("chip/compiled/netcraq_chip.json.gz")
	check(t, err)
	p4info, err := os.ReadFile("chip/compiled/netcraq_chip.p4info.txtpb")
	check(t, err)
	s := &scenario{names: eventNames(t), open: func(t *testing.T, _ int) device {
		return &chipDevice{interpreter: interpreterOf(t, text, p4info), leases: map[uint64]uint64{}}
	}}
	s.commands(t, "switch", "port 1 host principal=1 address=10.0.1.1", "address 10.0.100.1", "slot 0x01000001 7",
		"route 10.0.1.1/32 port=1 mac=02:00:00:00:01:01", "route 169.254.78.67/32 controller")
	return s
}

func (s *scenario) commands(t *testing.T, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if got := s.outcome(t, line); strings.HasPrefix(got, "error") {
			t.Fatalf("%s: %s", line, got)
		}
	}
}

// TestChipEntries counts how many constant entries of the chip's tables are matched by packets of
// the scenarios. Each entry is a path through the program, like a branch in netcraq.p4.
func TestChipEntries(t *testing.T) {
	text, err := bmv2json.Text("chip/compiled/netcraq_chip.json.gz")
	check(t, err)
	p4info, err := os.ReadFile("chip/compiled/netcraq_chip.p4info.txtpb")
	check(t, err)
	text, tables := countEntries(t, text)
	matched := map[string]uint64{}
	var last *chipDevice
	collect := func() {
		if last == nil {
			return
		}
		for _, table := range tables {
			entries, err := last.pipeline.Entries(table)
			check(t, err)
			for i, e := range entries {
				c, err := last.pipeline.DirectCounter(table, &e)
				check(t, err)
				matched[fmt.Sprintf("%s %d: %s", table, i, describeEntry(&e))] += c.Packets
			}
		}
	}
	for _, name := range chipScenarios(t) {
		s := &scenario{names: eventNames(t), open: func(t *testing.T, _ int) device {
			collect()
			last = &chipDevice{interpreter: interpreterOf(t, text, p4info), leases: map[uint64]uint64{}}
			return last
		}}
		datadriven.RunTest(t, "testdata/scenarios/"+name+".txt", func(t *testing.T, d *datadriven.TestData) string {
			for _, line := range commandLines(d) {
				s.outcome(t, line)
			}
			return d.Expected
		})
	}
	collect()
	var never []string
	for entry, packets := range matched {
		if packets == 0 {
			never = append(never, entry)
		}
	}
	sort.Strings(never)
	if len(matched) < 400 || len(never) > chipEntriesNotMatched {
		t.Errorf("%d of %d entries are matched by no packet, more than %d:\n%s", len(never), len(matched),
			chipEntriesNotMatched, strings.Join(never, "\n"))
	}
}

// countEntries adds a counter to every table with constant entries, with a cell for each entry. It
// also returns the names of these tables.
func countEntries(t *testing.T, text []byte) (out []byte, tables []string) {
	t.Helper()
	var program map[string]any
	check(t, json.Unmarshal(text, &program))
	for _, p := range program["pipelines"].([]any) {
		for _, x := range p.(map[string]any)["tables"].([]any) {
			table := x.(map[string]any)
			entries, _ := table["entries"].([]any)
			if len(entries) == 0 {
				continue
			}
			name := table["name"].(string)
			tables = append(tables, name)
			table["with_counters"] = true
			program["counter_arrays"] = append(program["counter_arrays"].([]any), map[string]any{
				"name": name + "_matched", "id": 100000 + len(tables), "is_direct": true, "binding": name})
		}
	}
	out, err := json.Marshal(program)
	check(t, err)
	return out, tables
}

func describeEntry(e *target.TableEntry) string {
	var words []string
	for _, m := range e.Match {
		switch {
		case m.Mask == nil:
			words = append(words, fmt.Sprintf("%x", m.Value))
		case len(bytes.Trim(m.Mask, "\x00")) == 0:
			words = append(words, "_")
		default:
			words = append(words, fmt.Sprintf("%x/%x", m.Value, m.Mask))
		}
	}
	return fmt.Sprintf("(%s) %s", strings.Join(words, " "), e.Action.Action)
}

// chipScenarios returns the scenario files with values of 128 bits.
func chipScenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/scenarios/*.txt")
	check(t, err)
	var names []string
	for _, file := range files {
		if name := strings.TrimSuffix(filepath.Base(file), ".txt"); !strings.HasPrefix(name, "values-") {
			names = append(names, name)
		}
	}
	if len(names) < 10 {
		t.Fatalf("only %d scenarios found", len(names))
	}
	return names
}
