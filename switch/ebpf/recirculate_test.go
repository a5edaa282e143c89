package ebpf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"sort"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// recirculatePorts are the ports of the tests below. CPUPort is the port for the controller.
var recirculatePorts = []uint32{1, 2, 3, 4, 5, 6}

const recirculateCPUPort = 510

// recirculation runs a program in which packets pass the pipeline several times. It runs the
// program on real interfaces and on the interpreter.
type recirculation struct {
	cables     *cables
	kernel     *device
	interp     *interp.Pipeline
	cpuPort    uint32
	controller chan []byte // the frames that the kernel's switch sends to the controller
	selection  int         // the parts of the program that are in use
}

func newRecirculation(t *testing.T, prog *bmv2json.Program, opts Options) *recirculation {
	t.Helper()
	a := &recirculation{cables: newCables(t, recirculatePorts), cpuPort: opts.CPUPort,
		controller: make(chan []byte, 4096)}
	var err error
	a.kernel, err = newDevice(opts)
	check(t, err)
	t.Cleanup(func() { a.kernel.Close() })
	a.kernel.OnPacketIn(func(frame []byte) { a.controller <- bytes.Clone(frame) })
	a.commit(t, prog)
	for _, n := range recirculatePorts {
		check(t, a.kernel.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
		if q := a.kernel.ports[n]; (q.At == HookXDP) != (opts.Hook == HookXDP) {
			t.Fatalf("port %d is at %v: %s", n, q.At, q.reason)
		}
	}
	return a
}

// commit commits a program to both engines.
func (a *recirculation) commit(t *testing.T, prog *bmv2json.Program) {
	t.Helper()
	check(t, a.kernel.Commit(prog))
	var err error
	a.interp, err = interp.New(prog, interp.Options{})
	check(t, err)
	for _, p := range []target.Pipeline{a.interp, a.kernel.Pipeline()} {
		check(t, p.SetMulticastGroup(7,
			[]target.Replica{{Port: 2, Instance: 100}, {Port: 3, Instance: 100},
				{Port: 3, Instance: 101}}))
		check(t, p.SetMulticastGroup(8, []target.Replica{}))
		check(t, p.SetCloneSession(5, &target.CloneSession{Replicas: []target.Replica{{Port: 4}}}))
		// The session copies to a port through which the original packet leaves, too.
		check(t, p.SetCloneSession(9,
			&target.CloneSession{Replicas: []target.Replica{{Port: 1, Instance: 9}}}))
		check(t, p.SetCloneSession(6,
			&target.CloneSession{Replicas: []target.Replica{{Port: 5, Instance: 1},
				{Port: 5, Instance: 2}, {Port: 6, Instance: 3}}, TruncateTo: 30}))
		if a.cpuPort != 0 {
			check(t, p.SetMulticastGroup(9,
				[]target.Replica{{Port: a.cpuPort, Instance: 4}, {Port: 2, Instance: 5}}))
			check(t, p.SetCloneSession(10,
				&target.CloneSession{Replicas: []target.Replica{{Port: a.cpuPort, Instance: 4},
					{Port: 2, Instance: 5}}}))
		}
	}
}

// frame returns a random frame for copies.p4. Its first bytes are ingress operation, egress
// operation, argument and round.
func (a *recirculation) frame(r *rand.Rand) []byte {
	frame := make([]byte, 30+r.IntN(60))
	for i := range frame {
		frame[i] = byte(r.Uint32())
	}
	frame[0], frame[1], frame[2], frame[3], frame[4] = byte(r.IntN(10)), byte(r.IntN(6)), 0,
		byte([]int{5, 6, 7, 8, 9, 10, 20}[r.IntN(7)]), byte(r.IntN(4))
	// The program truncates the frame to this many bytes. An interface sends at least 14.
	if frame[0] == 5 {
		frame[3] = byte(40 + r.IntN(40))
	}
	if frame[0] == 8 { // Multicast copies that egress truncates must also keep at least 14 bytes.
		frame[1] = 0
	}
	if frame[0] == 7 && a.cpuPort != 0 && r.IntN(2) == 0 {
		binary.BigEndian.PutUint16(frame[2:], uint16(a.cpuPort))
	}
	frame[12], frame[13] = 0x88, 0xb5 // the EtherType for local experiments
	return frame
}

// compare sends a frame to both engines, and reports whether the interpreter sent anything. If port
// is the CPU port, the frame is a packet-out.
func (a *recirculation) compare(t *testing.T, port uint32, frame []byte) bool {
	t.Helper()
	var want []stf.Packet
	wanted := 0 // number of frames that must leave by interfaces
	for _, o := range a.interp.Process(time.Second, port, bytes.Clone(frame)) {
		if len(o.Frame) < 14 || !slices.Contains(recirculatePorts, o.Port) &&
			(o.Port != a.cpuPort || a.cpuPort == 0) {
			continue
		}
		want = append(want, stf.Packet{Port: o.Port, Frame: bytes.Clone(o.Frame)})
		if o.Port != a.cpuPort {
			wanted++
		}
	}
	if port == a.cpuPort {
		check(t, a.kernel.PacketOut(frame))
	} else if _, err := unix.Write(a.cables.sockets[port], frame); err != nil {
		t.Fatal(err)
	}
	got, byPort := a.cables.takeInOrder(t, wanted), func(l []stf.Packet) func(i, j int) bool {
		if a.kernel.opts.Hook == HookXDP {
			// The kernel groups the frames of one poll by protocol before packet sockets receive
			// them, so they do not arrive in the order of sending.
			return func(i, j int) bool {
				return l[i].Port < l[j].Port || l[i].Port == l[j].Port &&
					bytes.Compare(l[i].Frame, l[j].Frame) < 0
			}
		}
		return func(i, j int) bool { return l[i].Port < l[j].Port }
	}
	for patience := time.After(500 * time.Millisecond); len(got) < len(want); {
		select {
		case f := <-a.controller:
			got = append(got, stf.Packet{Port: a.cpuPort, Frame: f})
			continue
		case <-patience:
		}
		break
	}
	for _, l := range [][]stf.Packet{want, got} {
		sort.SliceStable(l, byPort(l))
	}
	if fmt.Sprint(want) != fmt.Sprint(got) || len(a.controller) > 0 {
		t.Fatalf("selection %04b, lost %d, by port %d: %x\n"+
			"interp: %s\nkernel: %s and %d packet-ins",
			a.selection, a.kernel.PortMap.Lost(), port, frame, show(want), show(got),
			len(a.controller))
	}
	return len(want) > 0
}

// TestRecirculate sends random frames through a program that clones, resubmits, recirculates,
// multicasts and truncates, in ingress and in egress. It uses real interfaces at both hooks. The
// outgoing frames must equal the interpreter's frames. At tc they must also leave each port in the
// same order.
func TestRecirculate(t *testing.T) {
	prog := readProgram(t, "../stf/testdata/copies.json")
	for i, hook := range []Hook{HookTC, HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			a := newRecirculation(t, prog, Options{Hook: hook})
			r := rand.New(rand.NewPCG(7, uint64(i)))
			kinds := map[[2]byte]bool{}
			for range 600 {
				if frame := a.frame(r); a.compare(t, recirculatePorts[r.IntN(3)], frame) {
					kinds[[2]byte{frame[0], frame[1]}] = true
				}
			}
			if len(kinds) < 36 {
				t.Errorf("only %d combinations of operations came out", len(kinds))
			}
			if n := a.kernel.PortMap.Lost(); n > 0 {
				t.Errorf("%d frames were lost on their way back", n)
			}
		})
	}
}

// TestCopiesOfManyLengths uses a program whose egress truncates each copy to another length. The
// controller's copy is shorter than the copy that leaves after it through a port. The longer copy
// must still have all its bytes.
func TestCopiesOfManyLengths(t *testing.T) {
	text, err := os.ReadFile("../stf/testdata/copies.json")
	check(t, err)
	fixed := regexp.MustCompile(`(?s)("op" : "truncate",\s*"parameters" : \[\s*)\{\s*"type" : "hexstr",\s*"value" : "0x00000028"\s*\}`)
	if len(fixed.FindAll(text, -1)) != 1 {
		t.Fatal("the program does not cut to 40 bytes in one place")
	}
	// a copy is truncated to 40 bytes plus 8 times the replica's instance
	prog, err := bmv2json.Parse(fixed.ReplaceAll(text, []byte(`$1{"type": "expression", "value": {"type": "expression",
		"value": {"op": "+", "left": {"type": "hexstr", "value": "0x00000028"}, "right": {"type": "expression",
		"value": {"op": "<<", "left": {"type": "field", "value": ["standard_metadata", "egress_rid"]},
		"right": {"type": "hexstr", "value": "0x3"}}}}}}`)))
	check(t, err)
	for i, hook := range []Hook{HookTC, HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			a := newRecirculation(t, prog, Options{Hook: hook, CPUPort: recirculateCPUPort})
			r := rand.New(rand.NewPCG(9, uint64(i)))
			for range 100 {
				frame := a.frame(r)
				frame = append(frame, make([]byte, 90-len(frame))...)
				// send the frame to the multicast group that contains the controller
				frame[0], frame[1], frame[2], frame[3] = 1, 4, 0, 9
				for i := 14; i < len(frame); i++ {
					frame[i] = byte(1 + r.IntN(255))
				}
				if !a.compare(t, 1, frame) {
					t.Fatal("nothing came out")
				}
			}
		})
	}
}

// TestRecirculateInParts does what TestRecirculate does with parts of the program: every selection
// of the primitives that send packets through the program again. It runs with a CPU port, for
// packets from the controller and copies to the controller, and without a CPU port.
func TestRecirculateInParts(t *testing.T) {
	parts := []string{"clone_ingress_pkt_to_egress", "clone_egress_pkt_to_egress", "resubmit",
		"recirculate"}
	selected := func(n int) *bmv2json.Program {
		prog := readProgram(t, "../stf/testdata/copies.json")
		var has []string
		for i, op := range parts {
			if n>>i&1 == 1 {
				has = append(has, op)
			}
		}
		for _, action := range prog.Actions {
			for _, p := range action.Primitives {
				if slices.Contains(parts, p.Op) && !slices.Contains(has, p.Op) {
					p.Op, p.Args = "no_op", nil
				}
			}
		}
		return prog
	}
	for _, opts := range []Options{{Hook: HookTC}, {Hook: HookTC, CPUPort: recirculateCPUPort},
		{Hook: HookXDP, CPUPort: recirculateCPUPort}} {
		t.Run(fmt.Sprintf("%v/%d", opts.Hook, opts.CPUPort), func(t *testing.T) {
			var a *recirculation
			given, came := 0, 0
			for n := 1; n < 1<<len(parts); n++ {
				prog := selected(n)
				if a == nil {
					a = newRecirculation(t, prog, opts)
				} else {
					a.commit(t, prog)
				}
				from := recirculatePorts[:3]
				if a.cpuPort != 0 {
					from = []uint32{1, 2, a.cpuPort}
				}
				a.selection = n
				r := rand.New(rand.NewPCG(8, uint64(n)))
				for range 20 {
					given++
					if a.compare(t, from[r.IntN(3)], a.frame(r)) {
						came++
					}
				}
			}
			if came < given/3 {
				t.Errorf("of %d frames only %d came out", given, came)
			}
		})
	}
}
