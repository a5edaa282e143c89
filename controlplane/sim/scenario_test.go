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

// TestScenarios runs the files in testdata: stories about a chain, including the cases of
// docs/protocol.md, "Changing a chain". The input is commands, the output is the resulting
// timeline. The network is perfect except for the commands' faults, and nothing is random. Keys are
// numbers from 1 to the network command's keys=N.
//
//	network SHAPE [keys=N] [placed=N] [call-timeout=D] [lease=D] [patience=D] [settle=D] [without=MUTANT] [slow-store] [without-registers] [open-peers]    a new network (shapes.go), its chain formed and its keys placed (with placed=N the first N of them only), never written; with without-registers no switch shows its registers; with open-peers every switch takes a chain's messages by any port, as one whose controller knows no chain_peer
//	client C at=HOST [resend=D]    a client; it asks the service address first, then the switches in order
//	write C key=N value=V | delete C key=N | read C key=N [eventual] | cas C key=N expected=E.S value=V     a call begins; all take [timeout=D] [to=S]
//	run D [packets] [leases] [quiet]       time passes. Printed is what clients, controllers and operators do and what the network loses; with packets also what
//	                               each switch does with each packet, with leases renewals too; with quiet nothing
//	suspend S D [notice=D]         a switch's machine stands still for D; the controllers notice that their connections are lost after D (default never)
//	isolate S [notice=D]           the controllers cannot reach a switch, but clients can; they notice after D (default 10ms)
//	reconnect S [late=D]           what was sent by connections that were given up meanwhile arrives D later
//	part N S       the controller that was started N-th cannot reach a switch, but others can; it notices after 1ms
//	slew S RATE                    a switch's clock runs so fast from now on
//	cut A B, mend A B              a link
//	kill S, start S                kill -9 of a switch, and a new start with nothing in it
//	kill-controller, controller    the newest controller is killed; another one starts, from what was stored
//	keep-record, put-back-record   what is stored of the chain is set aside, as a copy of a file is; it is put back
//	starve D [ticks=D] [hears=D] [alone]   for D the newest controller does what is due, and takes in what comes, late by as much; alone: nothing else is wrong, so nobody may be given up
//	slow-store     from now on the store takes tens of milliseconds
//	lose OP [from=A] [to=B] [times=N] [flags=F]    the next N (default 1) such packets are lost on that link
//	hold OP ...                    ... are held back, until
//	release [N]                    the first N of them, or all
//	duplicate OP ... [later]       ... arrive twice; with later the second copy is held back
//	hold-out OP S [times=N]        the next N (default 1; -1: all) packet-outs with such a packet (ANY: any) wait in a switch, before its pipeline, when its server has taken them
//	hold-in OP S [times=N]         ... packet-ins wait in a switch, before its server; they go to whoever is primary then
//	hold-call WHAT S [times=N]     the next N calls of a kind wait in a switch, which carries them out when they are let go, if they come from its primary then. What they write: program (load it),
//	                               base, groups, chain (the configuration), address, former (groups that nobody uses any more), keys (entries), watches; or what they read, with read: program, report, keys, registers
//	let-go [S] [first=N]           the first N of those at a switch, or all
//	keep-config S, late-config S   a switch's part in the chain, as its table has it, is set aside; a table write that comes late puts it back, and nobody is told
//	wipe S [tables] [part] [registers]    a switch loses what is in its tables, or of those its part in the chain alone (its configuration, keys' entries), or what is in its registers, while its connections live on; the default is tables and registers
//	clear                          such rules end
//	move N                         an operator asks for a key to be moved, to another KEY_ID and slot
//	remove N, place N              an operator takes a key out of the network; places it (again), under another KEY_ID, in the lowest slot that is free
//	                               (A chain without keys grows and shrinks by propose.)
//	access all|read|none           what clients may do with keys, at all switches
//	inherit C D                    the client D is killed, and its sessions are leased to C
//	take-session C                 the switches take a client's session no more, and it has another
//	recover S                      an operator asks for a switch to be brought in
//	propose members=(...) | lease=D | frozen=BOOL   an operator asks for a change
//	state [key=N]                  what each switch has: its part in the chain; its committed version, and the newest if it is dirty
//	check                          what clients were told must be linearizable, one version have one value, and packets not become more and more
//	settle                         all faults end; then everything must become whole (settle.go)
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
	// Which lines of the timeline are printed.
	packets, quiet, leases bool
	clients                map[string]*world.Client
	kept                   *chain.Record
	configs                map[string]compiled.Entry // saved by keep-config, by switch
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

// word returns the n-th argument of the form without "=value".
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
	s.w.Control = clockwork.NewDice(0, clockwork.DiceControl) // so that the set-up's draws change nothing later
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

// op returns the operation with a name; 0: any.
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
