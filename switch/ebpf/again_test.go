package ebpf

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/stf"
	"github.com/netcraq/netcraq/switch/target"
)

// TestAgain gives random frames to a program that clones, resubmits, recirculates, multicasts and truncates, in ingress and in egress, on real interfaces at both hooks: what
// comes out must be what the interpreter sends.
func TestAgain(t *testing.T) {
	prog := readProgram(t, "../stf/testdata/copies.json")
	ports := []uint32{1, 2, 3, 4, 5, 6}
	for i, hook := range []Hook{HookTC, HookXDP} {
		t.Run(hook.String(), func(t *testing.T) {
			c := newCables(t, ports)
			d, err := newDevice(Options{Hook: hook})
			check(t, err)
			defer d.Close()
			check(t, d.Commit(prog))
			for _, n := range ports {
				check(t, d.AddPort(target.Port{Number: n, Iface: fmt.Sprintf("s%d", n)}))
				if q := d.ports[n]; (q.hook == hookXDP) != (hook == HookXDP) {
					t.Fatalf("port %d is at %v: %s", n, q.hook, q.why)
				}
			}
			in, err := interp.New(prog, interp.Options{})
			check(t, err)
			for _, p := range []target.Pipeline{in, d.Pipeline()} {
				check(t, p.SetMulticastGroup(7, []target.Replica{{Port: 2, Instance: 100}, {Port: 3, Instance: 100}, {Port: 3, Instance: 101}}))
				check(t, p.SetMulticastGroup(8, []target.Replica{}))
				check(t, p.SetCloneSession(5, &target.CloneSession{Replicas: []target.Replica{{Port: 4}}}))
				check(t, p.SetCloneSession(6, &target.CloneSession{Replicas: []target.Replica{{Port: 5, Instance: 1}, {Port: 5, Instance: 2}, {Port: 6, Instance: 3}}, TruncateTo: 30}))
			}
			r := rand.New(rand.NewPCG(7, uint64(i)))
			kinds := map[[2]byte]bool{}
			for n := range 600 {
				frame := make([]byte, 30+r.IntN(60))
				for i := range frame {
					frame[i] = byte(r.Uint32())
				}
				// Ingress operation, egress operation, argument, round.
				frame[0], frame[1], frame[2], frame[3], frame[4] = byte(r.IntN(10)), byte(r.IntN(6)), 0, byte([]int{5, 6, 7, 8, 9, 20}[r.IntN(6)]), byte(r.IntN(4))
				if frame[0] == 5 { // cut to that many bytes: an interface sends no fewer than 14
					frame[3] = byte(40 + r.IntN(40))
				}
				if frame[0] == 8 { // ... nor does it after multicast of what egress cuts
					frame[1] = 0
				}
				frame[12], frame[13] = 0x88, 0xb5 // a type for local experiments
				port := ports[r.IntN(3)]
				var want []stf.Packet
				for _, o := range in.Process(time.Second, port, bytes.Clone(frame)) {
					if len(o.Frame) >= 14 && slices.Contains(ports, o.Port) {
						want = append(want, stf.Packet{Port: o.Port, Frame: bytes.Clone(o.Frame)})
					}
				}
				sort.Slice(want, func(i, j int) bool {
					return want[i].Port < want[j].Port || want[i].Port == want[j].Port && bytes.Compare(want[i].Frame, want[j].Frame) < 0
				})
				if _, err := unix.Write(c.sockets[port], frame); err != nil {
					t.Fatal(err)
				}
				got := c.take(t, len(want))
				if fmt.Sprint(want) != fmt.Sprint(got) {
					t.Fatalf("lost %d, frame %d by port %d: %x\ninterp: %s\nkernel: %s", d.portMap.load(portsLost), n, port, frame, show(want), show(got))
				}
				if len(want) > 0 {
					kinds[[2]byte{frame[0], frame[1]}] = true
				}
			}
			if len(kinds) < 36 {
				t.Errorf("only %d combinations of operations came out", len(kinds))
			}
			if n := d.portMap.load(portsLost); n > 0 {
				t.Errorf("%d frames were lost on their way back", n)
			}
		})
	}
}
