package agent_test

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// Verdicts of a tc program (linux/pkt_cls.h, linux/bpf.h).
const (
	passToNext  = -1 // TCX_NEXT, TC_ACT_UNSPEC; the next program also gets the packet
	passToStack = 0  // TCX_PASS, TC_ACT_OK; no further program gets the packet
	dropped     = 2
)

// foreignProgram is a program of another network at the node's end of a pod's interface. It counts
// the packets that it gets.
type foreignProgram struct {
	t       *testing.T
	program *ebpf.Program
	counts  *ebpf.Map
}

// newForeign makes a foreignProgram. It has one verdict for NetCRAQ packets and one for all other
// packets.
func newForeign(t *testing.T, onNetCRAQ, onOthers int32) *foreignProgram {
	t.Helper()
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	check(t, err)
	load := func(offset, n int32) asm.Instructions {
		return asm.Instructions{asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, offset), asm.Mov.Reg(asm.R3, asm.R10),
			asm.Add.Imm(asm.R3, -16), asm.Mov.Imm(asm.R4, n), asm.FnSkbLoadBytes.Call(), asm.JNE.Imm(asm.R0, 0, "other")}
	}
	count := func(offset uint32, verdict int32) asm.Instructions {
		return asm.Instructions{asm.LoadMapValue(asm.R1, counts.FD(), offset), asm.Mov.Imm(asm.R2, 1),
			asm.StoreXAdd(asm.R1, asm.R2, asm.Word), asm.Mov.Imm(asm.R0, verdict), asm.Return()}
	}
	insns := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)}
	insns = append(insns, load(14+9, 1)...)
	insns = append(insns, asm.LoadMem(asm.R8, asm.R10, -16, asm.Byte), asm.JNE.Imm(asm.R8, unix.IPPROTO_UDP, "other"))
	insns = append(insns, load(14+20+2, 2)...)
	insns = append(insns, asm.LoadMem(asm.R8, asm.R10, -16, asm.Half),
		asm.JNE.Imm(asm.R8, int32(bits.ReverseBytes16(wire.Port)), "other"))
	insns = append(insns, count(4, onNetCRAQ)...)
	other := count(0, onOthers)
	other[0] = other[0].WithSymbol("other")
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: "cil_from_contai", Type: ebpf.SchedCLS, License: "GPL",
		Instructions: append(insns, other...)})
	check(t, err)
	t.Cleanup(func() { p.Close(); counts.Close() })
	return &foreignProgram{t, p, counts}
}

// seen returns how many NetCRAQ packets and other packets the program has got since the last call
// of seen.
func (f *foreignProgram) seen() (netcraq, others uint32) {
	f.t.Helper()
	var c [2]uint32
	check(f.t, f.counts.Lookup(uint32(0), &c))
	check(f.t, f.counts.Put(uint32(0), [2]uint32{}))
	return c[1], c[0]
}

// at attaches a foreignProgram to an interface.
type at func(f *foreignProgram, ifindex int) (detach func() error, err error)

// tcx attaches a program with a link, as Cilium does on Linux 6.6 and later (at the tail).
func tcx(anchor link.Anchor) at {
	return func(f *foreignProgram, ifindex int) (func() error, error) {
		l, err := link.AttachTCX(link.TCXOptions{Interface: ifindex, Program: f.program,
			Attach: ebpf.AttachTCXIngress, Anchor: anchor})
		if err != nil {
			return nil, err
		}
		return l.Close, nil
	}
}

// clsact attaches a program with a tc filter, as Cilium does on older kernels.
func clsact(f *foreignProgram, ifindex int) (func() error, error) {
	q := &netlink.GenericQdisc{QdiscType: "clsact", QdiscAttrs: netlink.QdiscAttrs{LinkIndex: ifindex,
		Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := netlink.QdiscAdd(q); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, err
	}
	b := &netlink.BpfFilter{FilterAttrs: netlink.FilterAttrs{LinkIndex: ifindex, Parent: netlink.HANDLE_MIN_INGRESS,
		Handle: 1, Protocol: unix.ETH_P_ALL, Priority: 1}, Fd: f.program.FD(), Name: "cilium-foreign", DirectAction: true}
	return func() error { return errors.Join(netlink.FilterDel(b), netlink.QdiscDel(q)) }, netlink.FilterAdd(b)
}

// TestForeignPrograms checks a program of another network at the same interface, before or after
// the switch's program. The program must still get its packets. NetCRAQ must work unless the
// program keeps NetCRAQ packets. When the port has gone, the program must still be attached,
// unchanged.
func TestForeignPrograms(t *testing.T) {
	for _, c := range []struct {
		name                string
		where               at
		onNetCRAQ, onOthers int32
		after               bool // agent runs with --after-others
		works               bool // NetCRAQ is expected to work
		meets               bool // the foreign program is expected to get NetCRAQ packets
	}{
		{"tcx, lets pass, behind", tcx(link.Tail()), passToNext, passToNext, false, true, false},
		{"tcx, takes all for the stack, behind", tcx(link.Tail()), passToStack, passToStack, false, true, false},
		{"tcx, drops what it does not know, behind", tcx(link.Tail()), dropped, passToStack, false, true, false},
		{"clsact, takes all for the stack, behind", clsact, passToStack, passToStack, false, true, false},
		{"tcx, lets pass, before", tcx(nil), passToNext, passToNext, true, true, true},
		{"clsact, lets pass, before", clsact, passToNext, passToNext, true, true, true},
		{"clsact, only NetCRAQ's go on, before", clsact, passToNext, passToStack, true, true, true},
		{"tcx, takes all for the stack, before", tcx(nil), passToStack, passToStack, true, false, true},
		{"tcx, drops NetCRAQ's: a policy, before", tcx(nil), dropped, passToNext, true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			args := []string{"--chained"}
			if c.after {
				args = append(args, "--after-others")
			}
			n := newNode(t, "10.244.1.0/24", args...)
			n.withoutIPv6()
			alone := n.list(n.bridgePlugin())
			p, q := n.mustAddTo(t, alone), n.mustAddTo(t, alone)
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			host := peerOf(t, n, p)
			f := newForeign(t, c.onNetCRAQ, c.onOthers)
			var detach func() error
			n.onHost(t, host, func(ifindex int) (err error) { detach, err = c.where(f, ifindex); return err })
			was := picture(t, n)
			n.start()
			started := picture(t, n)
			check(t, n.chainPod(t, p))
			control := startController(t, []*node{n}, p)
			added, err := control.AddKey(t.Context(), "main", admin.KeySpec{Name: "/leader", Value: []byte("alice")})
			check(t, err)
			client := newClient(t, p.space)
			works := func() bool { return reads(client, wire.Key(added.KeyID)) == "alice" }
			ask := func(what string, want bool) {
				t.Helper()
				f.seen()
				if got := works(); got != want {
					t.Errorf("%s: NetCRAQ works: %v", what, got)
				}
				netcraq, _ := f.seen()
				if (netcraq > 0) != c.meets {
					t.Errorf("%s: the other program has met %d packets of NetCRAQ's", what, netcraq)
				}
				check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
				if _, others := f.seen(); others < 3 {
					t.Errorf("%s: the other program has met %d other packets of a connection", what, others)
				}
			}
			ask("at first", c.works)

			// With the agent killed, no one routes packets that the switch would have taken.
			n.kill()
			request := wire.Packet{Op: wire.Ack}
			from, to := netip.AddrPortFrom(p.ip, 5001), netip.AddrPortFrom(q.ip, wire.Port)
			forgery{}.send(t, p, from, to, request)
			if netcraq, _ := f.seen(); (netcraq > 0) != c.meets {
				t.Errorf("without an agent the other program has met %d packets of NetCRAQ's", netcraq)
			}
			if seen(t, q.space, "eth0", p.ip, wire.Port, false, func() {
				forgery{}.send(t, p, from, to, request)
			}) && c.onNetCRAQ != passToStack {
				t.Error("without an agent a pod's NetCRAQ packets get to another pod")
			}
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			n.start()
			check(t, n.unchainPod(t, p))
			if now := picture(t, n); now != started {
				t.Errorf("with the port gone it is\n%s\nand was\n%s", now, started)
			}
			n.kill()
			sh(t, "ip", "netns", "exec", n.space, n.bin+"/netcraq-agent", "cleanup", "--cni-conf-dir", t.TempDir(), "--state-dir", n.state())
			if now := picture(t, n); now != was {
				t.Errorf("after cleanup it is\n%s\nand was\n%s", now, was)
			}
			f.seen()
			check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))
			if _, others := f.seen(); others < 3 {
				t.Errorf("the other program has met %d packets after cleanup", others)
			}
			n.onHost(t, host, func(int) error { return detach() })
		})
	}
}

// reads returns the value that a client reads, or gives up after a second.
func reads(c *client.Client, key wire.Key) string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	r, err := c.Get(ctx, key)
	if err != nil {
		return ""
	}
	return string(r.Value)
}

// peerOf returns the name of the node's end of a pod's interface, as the kernel knows it.
func peerOf(t *testing.T, n *node, p *pod) string {
	t.Helper()
	index, err := inside(t, p.space, func() (int, error) {
		l, err := netlink.LinkByName("eth0")
		if err != nil {
			return 0, err
		}
		return l.Attrs().ParentIndex, nil
	})
	check(t, err)
	name, err := inside(t, n.space, func() (string, error) {
		l, err := net.InterfaceByIndex(index)
		if err != nil {
			return "", err
		}
		return l.Name, nil
	})
	check(t, err)
	return name
}

// chainPod and unchainPod run ADD and DEL of only netcraq-cni, for an existing pod.
func (n *node) chainPod(t testing.TB, p *pod) error {
	t.Helper()
	_, err := n.plug(t, p, "ADD", n.chained("1.0.0", fmt.Sprintf(`{"cniVersion":"1.0.0","ips":[{"address":"%s/24"}]}`, p.ip)))
	return err
}

func (n *node) unchainPod(t testing.TB, p *pod) error {
	t.Helper()
	_, err := n.plug(t, p, "DEL", n.chained("1.0.0", ""))
	return err
}
