package interp

import (
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// TestTrace traces a packet that hits a table, and a packet that misses all tables.
func TestTrace(t *testing.T) {
	prog, err := bmv2json.ReadFile("../p4rtserver/testdata/ageing.json")
	must(t, err)
	var lines []string
	p, err := New(prog, Options{Trace: func(s string) { lines = append(lines, s) }})
	must(t, err)
	must(t, p.InsertEntry("MyIngress.learned", &target.TableEntry{
		Match:  []target.FieldMatch{{Value: []byte{0, 0, 0, 0, 0, 1}}},
		Action: act("MyIngress.forward", []byte{0, 2})}))
	frame := []byte{0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 9, 8, 0}
	p.Process(0, 1, frame)
	p.Process(0, 1, frame[:5])
	want := `[1] Packet of 14 bytes received on port 1
[1] Parser state 'start'
[1] Parser: extract 'ethernet', at byte 14
[1] Pipeline 'ingress'
[1] Table 'MyIngress.learned': hit. Key: hdr.ethernet.dst: 000000000001
[1] Action MyIngress.forward(port: 0002)
[1] Primitive ageing.p4(26) standard_metadata.egress_spec = port
[1] Table 'MyIngress.filtered': miss. Key: hdr.ethernet.src: 000000000009
[1] Action NoAction()
[1] Table 'MyIngress.kept': miss. Key: hdr.ethernet.src: 000000000009
[1] Action NoAction()
[1] Pipeline 'egress', port 2
[1] Transmitting packet of 14 bytes out of port 2
[2] Packet of 5 bytes received on port 1
[2] Parser state 'start'
[2] Parser: extract 'ethernet' stops with error 1
[2] Pipeline 'ingress'
[2] Table 'MyIngress.learned': miss. Key: hdr.ethernet.dst: 0 (its header is not valid)
[2] Action NoAction()
[2] Table 'MyIngress.filtered': miss. Key: hdr.ethernet.src: 0 (its header is not valid)
[2] Action NoAction()
[2] Table 'MyIngress.kept': miss. Key: hdr.ethernet.src: 0 (its header is not valid)
[2] Action NoAction()
[2] Pipeline 'egress', port 0
[2] Transmitting packet of 5 bytes out of port 0`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the trace is\n%s\nnot\n%s", got, want)
	}
}

// TestTraceChangesNothing runs the packets of the STF programs with and without a trace. The
// results must be the same.
func TestTraceChangesNothing(t *testing.T) {
	for _, name := range []string{"tables", "copies", "parsing", "stateful"} {
		frame := make([]byte, 64)
		for i := range frame {
			frame[i] = byte(i * 37)
		}
		plain, traced := load(t, name, Options{}), load(t, name, Options{Trace: func(string) {}})
		for op := range 256 {
			frame[0] = byte(op)
			a, b := plain.Process(0, 1, frame), traced.Process(0, 1, frame)
			if len(a) != len(b) {
				t.Fatalf("%s, operation %d: %d frames leave, with a trace %d", name, op, len(a),
					len(b))
			}
			for i := range a {
				if a[i].Port != b[i].Port || string(a[i].Frame) != string(b[i].Frame) {
					t.Errorf("%s, operation %d: %v leaves, with a trace %v", name, op, a[i], b[i])
				}
			}
		}
	}
}
