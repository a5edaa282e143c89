// Package devnet is a network of switches inside one process. Each switch is the interpreter
// (switch/interp) with the P4 program that ships, controlled through the real P4Runtime server
// (switch/p4rtserver). Cables are function calls, so the network needs no root, no namespace and no
// other process, and starts in a tenth of a second. `netcraq dev` and the tests of the controller
// run on it.
//
//	n := devnet.New(func(from devnet.Port, frame []byte) { ... }) // frames that leave the network
//	s1, err := n.AddSwitch()                                      // P4Runtime at s1.Address()
//	s2, err := n.AddSwitch()
//	n.Connect(devnet.Port{Switch: 1, Number: 3}, devnet.Port{Switch: 2, Number: 2})
//	n.Inject(devnet.Port{Switch: 1, Number: 1}, frame)            // a frame from a host
//
// [Loopback] connects such a network with the programs of this machine, for which it gives the
// switches addresses in 127.0.0.0/8.
//
// One goroutine processes all frames, one after the other. A network therefore uses one processor
// at most. It is for development and tests, and says nothing about the speed of switches that run
// in the kernel.
package devnet

import (
	"slices"
	"sync"
)

// CPUPort is the port by which switches and their controller exchange packets.
const CPUPort = 510

// maxWaiting is the number of frames that may wait to be processed. Inject drops frames beyond it,
// as an interface with a full queue does.
const maxWaiting = 4096

// Port is a port of a switch. Switches count from 1, in the order in which they were added.
type Port struct {
	Switch int
	Number uint32
}

// Network is a set of switches and the cables between them. It is safe for concurrent use.
type Network struct {
	outside func(from Port, frame []byte)
	wake    chan struct{}
	done    chan struct{}
	ended   sync.WaitGroup

	mu       sync.Mutex
	work     []func() // functions queued for the network's goroutine
	switches []*Switch
	cables   map[Port]Port
	closed   bool
}

// New makes a network without switches. It calls outside, in the network's goroutine, for each
// frame that leaves a switch by a port without a cable. The frame then belongs to outside. Close
// ends the network.
func New(outside func(from Port, frame []byte)) *Network {
	n := &Network{outside: outside, wake: make(chan struct{}, 1), done: make(chan struct{}),
		cables: map[Port]Port{}}
	n.ended.Go(n.run)
	return n
}

// AddSwitch starts one more switch.
func (n *Network) AddSwitch() (*Switch, error) {
	n.mu.Lock()
	s := &Switch{network: n, number: len(n.switches) + 1}
	n.switches = append(n.switches, s)
	n.mu.Unlock()
	return s, s.Start()
}

// Switch returns a switch by its number. Numbers start at 1.
func (n *Network) Switch(number int) *Switch {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.switches[number-1]
}

// Connect puts a cable between two ports.
func (n *Network) Connect(a, b Port) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cables[a], n.cables[b] = b, a
}

// Inject lets a frame enter a switch by a port, as if a host had sent it. The frame then belongs to
// the network. If too many frames wait already, Inject drops it.
func (n *Network) Inject(at Port, frame []byte) {
	n.mu.Lock()
	if len(n.work) >= maxWaiting {
		n.mu.Unlock()
		return
	}
	s := n.switches[at.Switch-1]
	n.mu.Unlock()
	n.do(func() { s.process(at.Number, frame) })
}

// Close kills the switches and ends the network.
func (n *Network) Close() {
	n.mu.Lock()
	all, was := slices.Clone(n.switches), n.closed
	n.closed = true
	n.mu.Unlock()
	if was {
		return
	}
	for _, s := range all {
		s.Kill()
	}
	close(n.done)
	n.ended.Wait()
}

// do runs f in the network's goroutine, between two frames.
func (n *Network) do(f func()) {
	n.mu.Lock()
	n.work = append(n.work, f)
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *Network) run() {
	for {
		select {
		case <-n.done:
			return
		case <-n.wake:
		}
		for {
			n.mu.Lock()
			work := n.work
			n.work = nil
			n.mu.Unlock()
			if len(work) == 0 {
				break
			}
			for _, f := range work {
				f()
			}
		}
	}
}

// forward carries a frame that leaves a switch to the other end of the cable, or out of the
// network. The network's goroutine calls it.
func (n *Network) forward(from Port, frame []byte) {
	frame = slices.Clone(frame) // clone the frame, because the switch reuses the buffer
	n.mu.Lock()
	to, ok := n.cables[from]
	var s *Switch
	if ok {
		s = n.switches[to.Switch-1]
	}
	n.mu.Unlock()
	if ok {
		n.do(func() { s.process(to.Number, frame) })
		return
	}
	n.outside(from, frame)
}
