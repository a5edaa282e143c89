// Package queues monitors how many packets wait at the ports of a switch.
//
// The switch itself does not queue packets. Packets that a port cannot send yet wait in the
// queueing discipline of its interface, for example, tc-htb, tc-tbf or tc-netem. An interface
// without a queueing discipline has no queue. The kernel reports the number of waiting packets only
// on request, so this package requests it every [Interval]. This is often enough for links that
// need longer to drain their queue, and only on such links does a queue matter.
package queues

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Interval is the maximum age of a reported depth.
const Interval = 10 * time.Millisecond

// namesEvery is the number of intervals after which interfaces are looked up by name again even if
// the ports are the same. An interface may have been recreated meanwhile.
const namesEvery = 50

// Watch reads queue depths until Stop is called.
type Watch struct {
	handle *netlink.Handle
	ports  func() map[uint32]string
	set    func(port, depth uint32)

	names  map[uint32]string // names of the ports' interfaces at the last lookup
	known  map[uint32]int    // indexes of these interfaces
	depths map[uint32]uint32 // the depths that were last reported to set

	once  sync.Once
	end   chan struct{}
	ended chan struct{}
}

// New starts to watch queue depths in the network namespace of the calling thread. ports returns
// the present ports, with the names of their interfaces. The Watch calls set for each depth, in
// packets, that has changed. A removed port gets depth 0.
func New(ports func() map[uint32]string, set func(port, depth uint32)) (*Watch, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("asking for the queues of interfaces: %w", err)
	}
	w := &Watch{handle: h, ports: ports, set: set, depths: map[uint32]uint32{},
		end: make(chan struct{}), ended: make(chan struct{})}
	go w.run()
	return w, nil
}

// Stop ends the Watch. When it returns, all ports have depth 0, and set is not called any more.
func (w *Watch) Stop() {
	w.once.Do(func() { close(w.end) })
	<-w.ended
}

func (w *Watch) run() {
	defer close(w.ended)
	defer w.handle.Close()
	tick := time.NewTicker(Interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		w.look(n)
		select {
		case <-tick.C:
		case <-w.end:
			w.report(nil)
			return
		}
	}
}

// look reads the depths for the n-th time. It reads a new port at once.
func (w *Watch) look(n int) {
	if names := w.ports(); n%namesEvery == 0 || !maps.Equal(names, w.names) {
		w.names, w.known = names, w.indexes(names)
	}
	w.report(w.ask())
}

// indexes returns the present indexes of the interfaces with these names, by port.
func (w *Watch) indexes(names map[uint32]string) map[uint32]int {
	links, err := w.handle.LinkList()
	if err != nil {
		return w.known
	}
	byName := make(map[string]int, len(links))
	for _, l := range links {
		byName[l.Attrs().Name] = l.Attrs().Index
	}
	out := map[uint32]int{}
	for port, name := range names {
		if index, ok := byName[name]; ok {
			out[port] = index
		}
	}
	return out
}

// ask returns how many packets the root queueing discipline of each port holds, including the
// packets of its classes.
func (w *Watch) ask() map[uint32]uint32 {
	out := make(map[uint32]uint32, len(w.known))
	if len(w.known) == 0 {
		return out
	}
	all, err := w.handle.QdiscList(nil)
	if err != nil { // keep the depths of the last successful read
		for port, depth := range w.depths {
			out[port] = depth
		}
		return out
	}
	byIndex := make(map[int]uint32, len(all))
	for _, q := range all {
		a := q.Attrs()
		if a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			byIndex[a.LinkIndex] = a.Statistics.Queue.Qlen
		}
	}
	for port, index := range w.known {
		out[port] = byIndex[index]
	}
	return out
}

// report calls set for the depths that have changed.
func (w *Watch) report(now map[uint32]uint32) {
	for port, depth := range w.depths {
		if _, still := now[port]; !still && depth != 0 {
			w.set(port, 0)
		}
	}
	for port, depth := range now {
		if w.depths[port] != depth {
			w.set(port, depth)
		}
	}
	w.depths = now
}
