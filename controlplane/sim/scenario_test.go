package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/chain"
	"github.com/netcraq/netcraq/controlplane/sim/clockwork"
	"github.com/netcraq/netcraq/controlplane/sim/compiled"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/logbook"
	"github.com/netcraq/netcraq/controlplane/sim/mutants"
	"github.com/netcraq/netcraq/controlplane/sim/shapes"
	"github.com/netcraq/netcraq/controlplane/sim/trouble"
	"github.com/netcraq/netcraq/controlplane/sim/world"
)

// TestScenarios runs the files in testdata. They are stories about a chain, and include the cases
// of docs/protocol.md, "Changing a chain". The input is commands, the output is the resulting
// timeline. The network is perfect except for the commands' faults, and nothing is random. Keys are
// numbers from 1 to the network command's keys=N.
//
//	network SHAPE [OPTION...]  a new network (shapes.go), whose chain is formed
//	    keys=N, placed=N       the number of keys without values; only the first `placed` are placed
//	    call-timeout=D, lease=D, patience=D, settle=D    settings of the controller
//	    without=MUTANT         the program or the controller lacks a rule
//	    slow-store             as the command of that name, and also while the chain is formed
//	    without-registers      controllers cannot read the switches' registers
//	    open-peers             every switch accepts a chain's messages at any port, as if the
//	                           controller did not know the table chain_peer
//	client C at=HOST [resend=D]    a new client. It sends to the service address first, and then to
//	                               the switches in order
//	write C key=N value=V      begins a call. All calls have the options [timeout=D] [to=S]
//	delete C key=N
//	read C key=N [eventual]
//	cas C key=N expected=E.S value=V
//	run D [packets] [leases] [quiet]    time passes. It prints the actions of clients, controllers and
//	                           operators, and the network's losses. packets: also each switch's
//	                           actions for each packet; leases: also renewals; quiet: prints nothing
//	suspend S D [notice=D]     a switch's machine is suspended for D. The controllers notice after
//	                           notice (default: never) that their connections are lost
//	isolate S [notice=D]       the controllers cannot reach a switch, but clients can. They notice
//	                           after notice (default 10ms)
//	reconnect S [late=D]       ends isolate. Messages that the controllers sent in connections that
//	                           they have given up arrive D later
//	part N S                   the N-th started controller cannot reach a switch, but other
//	                           controllers can. It notices after 1ms
//	slew S RATE                a switch's clock runs at this rate from now on
//	cut A B, mend A B          cuts or repairs a link
//	kill S, start S            ends a switch with SIGKILL, or starts it with empty tables
//	kill-controller            ends the newest controller
//	controller                 starts another controller, which reads the store
//	keep-record                saves a copy of the stored record of the chain
//	put-back-record            puts the saved record back into the store
//	starve D [ticks=D] [hears=D] [alone]    for D, the newest controller does due work late by ticks,
//	                           and gets messages late by hears. alone: no other fault is active, so
//	                           the controller must give up no switch
//	slow-store                 from now on the store takes tens of milliseconds for a write
//	lose OP [from=A] [to=B] [times=N] [flags=F]    loses the next N (default 1) packets with this
//	                           operation on this link
//	hold OP ...                holds such packets back until release
//	duplicate OP ... [later]   duplicates such packets. later: holds the second copy back
//	release [N]                sends the first N packets that are held back, or all
//	hold-out OP S [times=N]    the next N (default 1; -1: all) packet-outs with such a packet (ANY:
//	                           any packet) wait in a switch between its server and its pipeline
//	hold-in OP S [times=N]     the next N packet-ins wait in a switch before its server, which sends
//	                           them to the connection that is primary later
//	hold-call WHAT S [times=N] [read]    the next N calls of a kind wait in a switch. When they are
//	                           released, the switch carries them out if they come from the
//	                           connection that is primary then. WHAT is the written content: program
//	                           (loading it), base, groups, chain (the configuration), address, former
//	                           (groups that are no longer in use), keys (entries), watches. With read
//	                           it is the read content: program, report, keys, registers
//	let-go [S] [first=N]       releases the first N calls and packets that wait at a switch (default:
//	                           at any), or all
//	keep-config S              saves a switch's entry of chain_config
//	late-config S              a late table write puts the saved entry back, without a notice to
//	                           anybody
//	wipe S [tables] [part] [registers]    a switch loses state while its connections stay. tables: all
//	                           entries; part: the chain's configuration and keys' entries; registers:
//	                           all registers. The default is tables and registers
//	clear                      ends the rules of lose, hold, duplicate and the hold-* commands
//	move N                     an operator moves a key to another KEY_ID and slot
//	remove N                   an operator removes a key from the network
//	place N                    an operator places a key (again), with another KEY_ID, in the lowest
//	                           free slot. (A chain without keys grows and shrinks by propose.)
//	access all|read|none       what clients may do with keys, at all switches
//	inherit C D                client D is killed, and its sessions are leased to C
//	take-session C             the switches refuse a client's session from now on, and the client
//	                           gets another
//	recover S                  an operator requests the recovery of a switch
//	propose members=(...) | lease=D | frozen=BOOL    an operator requests a change of the chain
//	state [key=N]              prints each switch's role, its committed version, and its latest
//	                           version if the key is dirty
//	check                      checks that the clients' results are linearizable, that a version has
//	                           one value, and that packets do not multiply
//	settle                     ends all faults; the network must become ready and consistent (settle.go)
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.HasSuffix(path, ".md") {
			return
		}
		s := &scenario{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			s.t, s.d, s.out = t, d, strings.Builder{}
			s.command()
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
		if s.w != nil {
			s.w.EndTasks()
		}
	})
}

// scenario is a file that is being executed.
type scenario struct {
	t   *testing.T
	d   *datadriven.TestData
	out strings.Builder
	w   *world.World
	// These fields say which lines of the timeline are printed.
	packets, quiet, leases bool
	clients                map[string]*world.Client
	kept                   *chain.Record
	configs                map[string]compiled.Entry // entries that keep-config has saved, by switch
}

func (s *scenario) values(key string) []string {
	for _, a := range s.d.CmdArgs {
		if a.Key == key {
			return a.Vals
		}
	}
	return nil
}

func (s *scenario) value(key, otherwise string) string {
	if v := s.values(key); len(v) > 0 {
		return v[0]
	}
	return otherwise
}

func (s *scenario) has(key string) bool {
	return slices.ContainsFunc(s.d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
}

func (s *scenario) number(key string, otherwise int) int {
	v := s.value(key, "")
	if v == "" {
		return otherwise
	}
	n, err := strconv.Atoi(v)
	s.check(err)
	return n
}

func (s *scenario) duration(key string, otherwise time.Duration) time.Duration {
	v := s.value(key, "")
	if v == "" {
		return otherwise
	}
	d, err := time.ParseDuration(v)
	s.check(err)
	return d
}

func (s *scenario) check(err error) {
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
}

// word returns the n-th argument of a command, not counting arguments of the form NAME=VALUE.
func (s *scenario) word(n int) string {
	for _, a := range s.d.CmdArgs {
		if len(a.Vals) == 0 {
			if n == 0 {
				return a.Key
			}
			n--
		}
	}
	s.d.Fatalf(s.t, "%s: a word is missing", s.d.Cmd)
	return ""
}

func (s *scenario) node() *world.Node {
	n := s.w.Node(s.word(0))
	if n == nil {
		s.d.Fatalf(s.t, "there is no switch %s", s.word(0))
	}
	return n
}

// line prints a line of the timeline, if its kind was requested.
func (s *scenario) line(l logbook.Line) {
	isSwitch := s.w != nil && s.w.Node(l.Who) != nil
	if s.quiet || l.Lease && !s.leases || isSwitch && !s.packets {
		return
	}
	fmt.Fprintf(&s.out, "%8.2fms  %-11s %s\n", float64(l.At)/float64(time.Millisecond), l.Who, l.What)
}

func (s *scenario) command() {
	d, w := s.d, s.w
	switch d.Cmd {
	case "network":
		s.network()
	case "client":
		host := s.value("at", "")
		for _, h := range w.Shape.Topology.Hosts {
			if h.Name == host {
				s.clients[s.word(0)] = w.NewClient(s.word(0), h, 1, func(c *calls.Config) {
					c.Retransmit = s.duration("resend", 10*time.Millisecond)
					c.RetryPause, c.MaxRetryPause = 4*time.Millisecond, 4*time.Millisecond
				})
				return
			}
		}
		d.Fatalf(s.t, "there is no host %q", host)
	case "write", "delete", "read", "cas":
		s.call()
	case "run":
		s.packets, s.quiet, s.leases = s.has("packets"), s.has("quiet"), s.has("leases")
		length, err := time.ParseDuration(s.word(0))
		s.check(err)
		w.Loop.Run(w.Loop.Now+length, nil)
		s.packets, s.quiet, s.leases = false, false, false
	case "suspend":
		length, err := time.ParseDuration(s.word(1))
		s.check(err)
		trouble.Suspend(w, s.node(), s.duration("notice", time.Minute), length)
	case "isolate":
		w.Isolate(s.node(), s.duration("notice", 10*time.Millisecond))
	case "reconnect":
		w.Late = s.duration("late", 0)
		w.Reconnect(s.node())
		w.Late = 0
	case "part":
		n, err := strconv.Atoi(s.word(0))
		s.check(err)
		dev := w.Controllers[n-1].Device(s.word(1))
		w.Trace("fault", "%s cannot reach %s", dev.Shell.Name, dev.Node.Name)
		dev.Cut = true
		dev.Unreachable(time.Millisecond)
	case "slew":
		rate, err := strconv.ParseFloat(s.word(1), 64)
		s.check(err)
		s.node().Slew(rate)
	case "cut", "mend":
		w.CutLink(world.Between(s.word(0), s.word(1)), d.Cmd == "cut")
	case "kill":
		w.KillNode(s.node())
	case "start":
		w.StartNode(s.node())
	case "keep-record":
		s.kept = w.Store.Record
	case "put-back-record":
		w.Store.SetRecord(s.kept)
	case "kill-controller":
		w.Controller().Kill()
	case "controller":
		w.StartController()
	case "keep-config":
		n := s.node()
		for _, e := range n.Entries {
			if e.Table == world.Register("chain_config") {
				s.configs[n.Name] = e
			}
		}
	case "late-config":
		n := s.node()
		w.Trace("fault", "%s: a table write of before comes late", n.Name)
		n.Set(s.configs[n.Name])
	case "starve":
		w.OnlyStarved = s.has("alone")
		length, err := time.ParseDuration(s.word(0))
		s.check(err)
		trouble.Starve(w, length, world.Starvation{Tick: s.duration("ticks", 0), Hears: s.duration("hears", 0)})
	case "slow-store":
		w.SlowDisk = 1
	case "lose", "hold", "duplicate":
		s.rule()
	case "release":
		n := len(w.Network.Held)
		if len(d.CmdArgs) > 0 {
			var err error
			n, err = strconv.Atoi(s.word(0))
			s.check(err)
		}
		w.Release(n)
	case "hold-out", "hold-in", "hold-call":
		s.holdControl()
	case "let-go":
		var n *world.Node
		for _, a := range d.CmdArgs {
			if len(a.Vals) == 0 {
				n = s.node()
			}
		}
		w.LetGo(n, s.number("first", -1))
	case "wipe":
		l := trouble.Loss{Tables: s.has("tables"), Part: s.has("part"), Registers: s.has("registers")}
		if l == (trouble.Loss{}) {
			l = trouble.Loss{Tables: true, Registers: true}
		}
		trouble.WipeNode(w, s.node(), l)
	case "clear":
		w.Network.Rules, w.ControlRules = nil, nil
	case "propose":
		s.propose()
	case "move":
		n, err := strconv.Atoi(s.word(0))
		s.check(err)
		w.Moving = true
		w.Controller().Move(w.Keys[n-1])
	case "remove", "place":
		n, err := strconv.Atoi(s.word(0))
		s.check(err)
		if d.Cmd == "remove" {
			w.Moving = true
			w.Controller().TakeOut(w.Keys[n-1])
		} else {
			w.Moving = true
			w.Controller().Place(w.Keys[n-1])
		}
	case "access":
		trouble.Grant(w, s.word(0) != "none", s.word(0) == "all")
	case "take-session":
		c := s.clients[s.word(0)]
		trouble.TakeFrom(w, c)
		trouble.GiveTo(w, c)
	case "inherit":
		dead := s.clients[s.word(1)]
		ids := slices.Clone(dead.Sessions)
		dead.Kill()
		w.Inherit(s.clients[s.word(0)], ids)
	case "recover":
		s.w.Controller().Recover(s.word(0))
	case "state":
		s.state()
	case "check":
		names := judge.VersionsOfNames(w.History.Ops, w.Incarnations, w.Offsets)
		for _, v := range slices.Concat(w.History.Check(w.Peeks.Guesses), names, w.Network.Storms(),
			w.Contradicted) {
			fmt.Fprintln(&s.out, v)
		}
	case "settle":
		s.quiet = true
		mend(w)
		found := settle(w)
		s.quiet = false
		names := judge.VersionsOfNames(w.History.Ops, w.Incarnations, w.Offsets)
		for _, v := range slices.Concat(w.History.Check(w.Peeks.Guesses), names, found, w.Contradicted) {
			fmt.Fprintln(&s.out, v)
		}
	default:
		d.Fatalf(s.t, "no such command")
	}
}

func (s *scenario) network() {
	sh, err := shapes.Find(s.word(0))
	s.check(err)
	m, err := mutants.Find(s.value("without", ""))
	s.check(err)
	sim, err := NewMutant(m)
	s.check(err)
	s.quiet = true
	if s.w != nil {
		s.w.EndTasks()
	}
	s.w, err = world.New(sim.program, sim.removed, &sim.engines, sh, 1, s.line)
	s.check(err)
	s.clients, s.configs = map[string]*world.Client{}, map[string]compiled.Entry{}
	for _, n := range s.w.Nodes {
		n.NoRegisters = s.has("without-registers")
	}
	s.w.Without.Peers = s.w.Without.Peers || s.has("open-peers")
	s.w.CallTimeout = s.duration("call-timeout", world.DefaultCallTimeout)
	s.w.Lease = s.duration("lease", shapes.DefaultLease)
	s.w.Patience = s.duration("patience", 0)
	s.w.SettleFor = s.duration("settle", 0)
	if s.has("slow-store") {
		s.w.SlowDisk = 1
	}
	keys := s.number("keys", 1)
	s.check(setUp(s.w, 0, keys, s.number("placed", keys)))
	if !s.has("slow-store") {
		s.w.Loop.Run(10*time.Millisecond, nil)
	}
	// the random choices of the set-up must not influence later ones
	s.w.Control = clockwork.NewDice(0, clockwork.DiceControl)
	s.quiet = false
	fmt.Fprintln(&s.out, s.w.Controller().Status.Config)
}

func (s *scenario) call() {
	c := s.clients[s.word(0)]
	if c == nil {
		s.d.Fatalf(s.t, "there is no client %s", s.word(0))
	}
	req := calls.Request{Op: map[string]wire.Op{"write": wire.Write, "delete": wire.Write, "read": wire.Read, "cas": wire.CAS}[s.d.Cmd],
		Key: wire.MakeKey(shapes.ChainID, uint32(s.number("key", 1))), Value: []byte(s.value("value", "")),
		Delete: s.d.Cmd == "delete", Eventual: s.has("eventual"),
		Deadline: s.w.Loop.Now + s.duration("timeout", time.Second)}
	if v := s.value("expected", ""); v != "" {
		var err error
		req.Expected, err = wire.ParseVersion(v)
		s.check(err)
	}
	if to := s.value("to", ""); to != "" {
		req.To = append(req.To, world.Address(s.w.Node(to)))
	}
	c.Start(req, nil)
}

func (s *scenario) rule() {
	r := &world.Rule{From: s.value("from", ""), To: s.value("to", ""), Times: s.number("times", 1), Hold: s.d.Cmd == "hold" || s.has("later")}
	if s.d.Cmd == "duplicate" {
		r.Copies = 1
	}
	r.Op = s.op(s.word(0))
	if s.value("flags", "") == "STAMPED" {
		r.Flags = wire.Stamped
	}
	s.w.Network.Rules = append(s.w.Network.Rules, r)
}

// op returns the operation with the given name. It returns 0 for ANY, which stands for any
// operation.
func (s *scenario) op(name string) wire.Op {
	for op := wire.Op(1); op.Valid(); op++ {
		if op.String() == name {
			return op
		}
	}
	if name != "ANY" {
		s.d.Fatalf(s.t, "no such op: %s", name)
	}
	return 0
}

func (s *scenario) holdControl() {
	n := s.w.Node(s.word(1))
	if n == nil {
		s.d.Fatalf(s.t, "there is no switch %s", s.word(1))
	}
	r := &world.ControlRule{Node: n, What: s.word(0), Times: s.number("times", 1)}
	switch s.d.Cmd {
	case "hold-out":
		r.Channel, r.Op = world.PacketOuts, s.op(r.What)
	case "hold-in":
		r.Channel, r.Op = world.PacketIns, s.op(r.What)
	default:
		switch r.Channel = world.Writes; {
		case s.has("read"):
			r.Channel = world.Reads
		case r.What == "program":
			r.Channel = world.Loads
		}
	}
	s.w.ControlRules = append(s.w.ControlRules, r)
}

func (s *scenario) propose() {
	var c chain.Change
	if m := s.values("members"); m != nil {
		c.Members = m
	}
	if v := s.value("lease", ""); v != "" {
		l := s.duration("lease", 0)
		c.Lease = &l
	}
	if v := s.value("frozen", ""); v != "" {
		f := v == "true"
		c.Frozen = &f
	}
	s.w.Controller().Propose(c)
}

func (s *scenario) state() {
	keys := s.w.Keys
	if s.has("key") {
		keys = []wire.Key{wire.MakeKey(shapes.ChainID, uint32(s.number("key", 1)))}
	}
	for _, n := range s.w.Nodes {
		fmt.Fprintf(&s.out, "%s ", n.Name)
		if !n.Alive {
			fmt.Fprintln(&s.out, "does not run")
			continue
		}
		if n.Assignment == nil {
			fmt.Fprint(&s.out, "has no part in the chain")
		} else {
			fmt.Fprintf(&s.out, "%v epoch %d", n.Assignment.Role, n.Assignment.Epoch)
		}
		for _, k := range keys {
			if x, ok := n.Slot(s.w.ID(k)); ok {
				fmt.Fprintf(&s.out, "; key %d: %v", k&0xFFFFFF, x.Committed)
				if x.Latest != x.Committed {
					fmt.Fprintf(&s.out, ", dirty %v", x.Latest)
				}
			}
		}
		fmt.Fprintln(&s.out)
	}
}
