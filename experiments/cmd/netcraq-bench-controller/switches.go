package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/netcraq/netcraq/controlplane/devnet"
	"github.com/netcraq/netcraq/switch/target"
)

// The process with the switches. It reads one command a line, and answers each with one line.

// command is what the process is asked for.
type command struct {
	Do     string   `json:"do"`               // cables, watch, state, kill or start
	Cables [][4]int `json:"cables,omitempty"` // for cables: switch, port, switch, port
	Watch  [][2]int `json:"watch,omitempty"`  // for watch: switch and chain, whose lease is read again and again
	Switch int      `json:"switch,omitempty"` // for kill and start
}

// state is what has happened at the switches.
type state struct {
	Error     string   `json:"error,omitempty"`
	Addresses []string `json:"addresses,omitempty"` // P4Runtime, by switch
	// Writes is how many table entries were written, and QuietMillis the time since the last one.
	Writes      int64 `json:"writes"`
	QuietMillis int64 `json:"quietMillis"`
	// Looks is how often a lease was read since watch, and Expired how often it had run out.
	Looks   int64 `json:"looks"`
	Expired int64 `json:"expired"`
}

// lookEvery is the time between two readings of all watched leases. It is shorter than the time
// between two renewals.
const lookEvery = 40 * time.Millisecond

// leaseRegister ends the name of the register with the ends of leases, in microseconds, by chain.
const leaseRegister = "lease_expiry"

// bank is the switches of one process.
type bank struct {
	network *devnet.Network
	count   int
	writes  atomic.Int64
	wrote   atomic.Int64 // Unix milliseconds of the last write

	mu             sync.Mutex
	watched        [][2]int
	looks, expired int64
	dead           map[int]bool
}

// serveSwitches serves n switches until its input ends.
func serveSwitches(n int, in io.Reader, out io.Writer) error {
	// The registers of a switch are megabytes that nothing touches. The collector must not wait
	// until as much garbage has come together.
	debug.SetGCPercent(25)
	b := &bank{network: devnet.New(func(devnet.Port, []byte) {}), count: n, dead: map[int]bool{}}
	defer b.network.Close()
	for range n {
		s, err := b.network.AddSwitch()
		if err != nil {
			return err
		}
		s.OnWrite(func(string, *target.TableEntry) {
			b.writes.Add(1)
			b.wrote.Store(time.Now().UnixMilli())
		})
	}
	go b.look()
	answers := json.NewEncoder(out)
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var c command
		err := json.Unmarshal(lines.Bytes(), &c)
		if err == nil {
			err = b.obey(c)
		}
		s := b.state(c.Do == "cables")
		if err != nil {
			s.Error = err.Error()
		}
		if err := answers.Encode(s); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (b *bank) obey(c command) error {
	switch c.Do {
	case "state":
	case "cables":
		for _, l := range c.Cables {
			b.network.Connect(devnet.Port{Switch: l[0], Number: uint32(l[1])},
				devnet.Port{Switch: l[2], Number: uint32(l[3])})
		}
	case "watch":
		b.mu.Lock()
		defer b.mu.Unlock()
		b.watched, b.looks, b.expired = c.Watch, 0, 0
	case "kill":
		b.setDead(c.Switch, true)
		b.network.Switch(c.Switch).Kill()
	case "start":
		b.setDead(c.Switch, false)
		return b.network.Switch(c.Switch).Start()
	default:
		return fmt.Errorf("no command is called %q", c.Do)
	}
	return nil
}

func (b *bank) setDead(sw int, dead bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.dead[sw] = dead
}

func (b *bank) state(addresses bool) state {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := state{Writes: b.writes.Load(), QuietMillis: time.Now().UnixMilli() - b.wrote.Load(), Looks: b.looks,
		Expired: b.expired}
	if addresses {
		for i := 1; i <= b.count; i++ {
			s.Addresses = append(s.Addresses, b.network.Switch(i).Address())
		}
	}
	return s
}

// look reads the watched leases at the switches themselves, again and again.
func (b *bank) look() {
	for range time.Tick(lookEvery) {
		b.mu.Lock()
		for _, w := range b.watched {
			if b.dead[w[0]] {
				continue
			}
			b.looks++
			if !leaseLive(b.network.Switch(w[0]), w[1]) {
				b.expired++
			}
		}
		b.mu.Unlock()
	}
}

// leaseLive reports whether a switch may answer reads of a chain.
func leaseLive(s *devnet.Switch, chain int) bool {
	p := s.Pipeline()
	if p == nil {
		return false
	}
	for _, r := range p.Program().Registers {
		if !strings.HasSuffix(r.Name, leaseRegister) {
			continue
		}
		now := s.Now() // before the register is read: a lease that is renewed between the two is live
		cell, err := p.ReadRegister(r.Name, chain)
		if err != nil {
			return false
		}
		var expiry uint64
		for _, c := range cell {
			expiry = expiry<<8 | uint64(c)
		}
		return expiry > uint64(now.Microseconds())
	}
	return false
}
