package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/wire"
)

// tunnels sends forged messages of a chain through the tunnels of a node's switch. Root can do that
// on a node that is not in a chain. The messages are those between members, answers to clients, and
// requests of the controller, from every address. It sends no requests of clients, because a node
// may forward such requests.
func (a *attacker) tunnels() {
	links, err := net.Interfaces()
	if err != nil {
		panic(err)
	}
	var fds []int
	for _, l := range links {
		if !strings.HasPrefix(l.Name, "ncqf") {
			continue
		}
		if fd, err := packetSocket(l.Index); err == nil {
			defer unix.Close(fd)
			fds = append(fds, fd)
		}
	}
	if len(fds) == 0 {
		fmt.Println("tunnels: there are none")
		return
	}
	var sent, refused atomic.Int64
	var wg sync.WaitGroup
	end := time.Now().Add(time.Duration(a.seconds * float64(time.Second)))
	for range runtime.NumCPU() {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), 36))
			for i := 0; time.Now().Before(end); i++ {
				if _, err := unix.Write(fds[i%len(fds)], a.chainMessage(r)); err != nil {
					refused.Add(1)
				} else {
					sent.Add(1)
				}
				if i%64 == 63 {
					// This leaves CPU time to the other nodes on the same machine.
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	wg.Wait()
	a.sent, a.refused = int(sent.Load()), int(refused.Load())
}

// chainMessage returns a random message that members of a chain or the controller could send.
func (a *attacker) chainMessage(r *rand.Rand) []byte {
	kinds := []struct {
		op    wire.Op
		flags wire.Flags
	}{{wire.Ack, 0}, {wire.Write, wire.Stamped}, {wire.Write, wire.Stamped | wire.NoReply}, {wire.CAS, wire.Stamped},
		{wire.Sync, 0}, {wire.Sync, wire.Session | wire.Newest}, {wire.Lease, 0}, {wire.Fetch, 0}, {wire.ReadReply, 0},
		{wire.WriteReply, 0}, {wire.CASReply, 0}}
	kind := kinds[r.IntN(len(kinds))]
	epoch := uint16(r.IntN(20))
	w := wire.Packet{Op: kind.op, Flags: kind.flags, Key: a.key + wire.Key(r.IntN(a.keys)), Epoch: epoch,
		Version: wire.MakeVersion(epoch, r.Uint64()>>(16+r.IntN(48))), Session: uint16(r.IntN(4096)),
		Request: r.Uint32() >> r.IntN(32), Value: []byte(forged)}
	if kind.op == wire.Fetch || kind.op == wire.Lease {
		w.Value = nil
	}
	everybody := append(append(a.targets(), a.nodes...), a.victim.Addr())
	any := func() netip.Addr { return everybody[r.IntN(len(everybody))] }
	p := a.packet(any(), any(), w)
	p.ID = []uint16{0, 0xffff, uint16(r.IntN(1 << 16))}[r.IntN(3)]
	if r.IntN(2) == 0 {
		p.Src = netip.AddrPortFrom(p.Src.Addr(), wire.Port)
	}
	if kind.op.IsReply() {
		p.Src, p.Dst = netip.AddrPortFrom(p.Src.Addr(), wire.Port), a.victim
	}
	return p.Frame()
}
