package chain

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// TestScenarios runs the files in testdata. Each is a story: the input is commands, the output is
// the machine's actions. Around the machine is a world of simulated switches, which remember what
// was installed in them, and answer LEASEs by their own clocks. Commands:
//
//	network switches=(...) [OPTION...]    a new world, and a controller without a record
//	    members=(...), lease=D, length=N  settings of the chain
//	    patience=D         Options.FailureTimeout
//	    settle=D           lost members rejoin once they have been steady for so long
//	    keys=N             the number of keys in the directory
//	    made=D             the machine is made so long after the controller's start
//	controller [record=none|copied] [doubt=D] [members=(...)] [lease=D]    restarts the controller, with
//	                       its last record, none, or that of copy-record. doubt: it waits so long for
//	                       the members in the record
//	copy-record            saves a copy of the record
//	up S...                switches connect (again) and report their contents
//	down S...              switches lose their connections and keep running
//	wipe S...              switches without connections restart and lose all contents
//	meddle S epoch=N       another client changes the epoch in the switch's configuration
//	erase S                another client deletes the switch's configuration
//	deliver [S...]         outstanding installations succeed: one at each of these switches, or all
//	refuse S               an outstanding installation fails
//	persist ok|fails       the result of persisting records from now on
//	run D [quiet]          time passes; connected switches answer LEASEs (quiet: LEASEs are not printed)
//	keys N                 the number of keys in the directory
//	propose OP [lease=D] [frozen=B] [members=(...)] [rest]
//	add OP, remove OP, abandon OP
//	take OP, put-back OP   operations for keys that move
//	done OP [error=E] [again]    the running step of an operation for keys ends
//	redriven [error=E]     the requested re-propagation ends
//	recover OP S           brings a switch into the chain
//	erased S [error=E]     a switch has been emptied and connects again, or emptying it has failed
//	copied [error=E]       the requested copying ends
//	rejoins OP             the shell executes the last Rejoin
//	rejoined [error=E]     the last Rejoin ends
//	forget-wanted          removes the wanted members from the record
//	leases lost [S...]     from now on these switches (default: all) do not answer LEASEs
//	leases answered        ends leases lost
//	alive S...             switches have sent a message other than an answer to a LEASE
//	working S...           switches have answered a call
//	untold S               the record of a session did not reach the joiner S
//	lease-reply S clock=US left=D [epoch=N] [refused] [before=N]    the answer to the last LEASE, or to
//	                       the N-th LEASE before it
//	clock S                the switch's clock restarts at zero
//	switches S... [leaving=(...)] [members=(...)]    the network's switches from now on; prints which of
//	                       them the chain needs
//	status                 prints the chain's status
//	phases                 prints the chain's phases since the last printing
//
// The scenarios together take each transition of the table in doc.go.
func TestScenarios(t *testing.T) {
	taken := map[[2]Phase]bool{}
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{t: t, taken: taken}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t, w.out = t, strings.Builder{}
			w.command(d)
			w.drain()
			if w.out.Len() == 0 {
				return "ok\n"
			}
			return w.out.String()
		})
	})
	for from, all := range follows {
		for _, to := range all {
			if !taken[[2]Phase{from, to}] {
				t.Errorf("no scenario leads from %v to %v", from, to)
			}
		}
	}
}

// TestTransitionsAreDocumented compares the table in doc.go with the table that enter uses.
func TestTransitionsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[Phase][]Phase{}
	for from := Discovering; from <= Ready; from++ {
		for to := Discovering; to <= Ready; to++ {
			if regexp.MustCompile(`(?mi)^//\t` + from.String() + ` +` + to.String() + ` +[a-z]`).Match(text) {
				documented[from] = append(documented[from], to)
			}
		}
	}
	if !reflect.DeepEqual(documented, follows) {
		t.Errorf("documented are %v; allowed are %v", documented, follows)
	}
}

// simSwitch is a switch of the simulated world.
type simSwitch struct {
	assignment *Assignment
	born       Time // when the switch's clock was zero
	keys       int
	connected  bool
	fresh      bool // the switch was restarted since its last connection
}

type world struct {
	t        *testing.T
	out      strings.Builder
	o        Options
	m        *Machine
	now      Time
	switches map[string]*simSwitch
	pending  []Install
	record   *Record
	copied   *Record
	persist  error
	keys     int
	quiet    bool
	leased   map[string]uint16 // the number of the last LEASE to each switch
	running  map[OpID]int      // the attempt of each operation's running step
	redrive  uint16
	erase    uint64
	copy     uint64
	rejoin   Rejoin
	unleased func(sw string) bool
	seen     []Phase           // the phases since the last printing, preceded by the last phase before it
	taken    map[[2]Phase]bool // the transitions that any scenario has taken
}

func (w *world) command(d *datadriven.TestData) {
	vals := func(key string) []string {
		for _, a := range d.CmdArgs {
			if a.Key == key {
				return a.Vals
			}
		}
		return nil
	}
	val := func(key string) string {
		if v := vals(key); len(v) > 0 {
			return v[0]
		}
		return ""
	}
	has := func(key string) bool {
		return slices.ContainsFunc(d.CmdArgs, func(a datadriven.CmdArg) bool { return a.Key == key })
	}
	dur := func(s string) time.Duration {
		x, err := time.ParseDuration(s)
		if err != nil {
			d.Fatalf(w.t, "%v", err)
		}
		return x
	}
	num := func(s string) int {
		x, err := strconv.Atoi(s)
		if err != nil {
			d.Fatalf(w.t, "%v", err)
		}
		return x
	}
	var args []string
	for _, a := range d.CmdArgs {
		if len(a.Vals) == 0 {
			args = append(args, a.Key)
		}
	}
	failure := func() error {
		if e := vals("error"); e != nil {
			return errors.New(strings.Join(e, " "))
		}
		return nil
	}
	switch d.Cmd {
	case "network", "controller":
		if d.Cmd == "network" {
			*w = world{t: w.t, taken: w.taken, switches: map[string]*simSwitch{}}
			w.unleased = func(string) bool { return false }
			w.o = Options{Name: "main", Switches: vals("switches"), Members: vals("switches"), Lease: 200 * time.Millisecond}
			for _, s := range w.o.Switches {
				w.switches[s] = &simSwitch{fresh: true}
			}
		}
		if has("patience") {
			w.o.FailureTimeout = dur(val("patience"))
		}
		if has("members") {
			w.o.Members = vals("members")
		}
		if has("lease") {
			w.o.Lease = dur(val("lease"))
		}
		if has("settle") {
			w.o.Rejoin = rejoin.For(dur(val("settle")))
		}
		if has("short") {
			w.o.ShortLease = dur(val("short"))
			w.o.ShortTimeout, w.o.ShortAfter = w.o.ShortLease/2, 2*time.Second
		}
		if has("length") {
			w.o.Length = num(val("length"))
		}
		if has("keys") {
			w.keys = num(val("keys"))
		}
		w.o.Record = w.record
		switch val("record") {
		case "none":
			w.o.Record = nil
		case "copied":
			w.o.Record = w.copied
		}
		w.o.Doubt = 0
		if has("doubt") {
			w.o.Doubt = dur(val("doubt"))
		}
		if w.o.Made = 0; has("made") {
			w.o.Made = dur(val("made"))
		}
		w.now, w.pending, w.running, w.redrive, w.leased = w.o.Made, nil, map[OpID]int{}, 0, map[string]uint16{}
		for _, s := range w.switches {
			s.connected = false
			s.born -= w.now
		}
		w.m, w.seen = New(w.o), []Phase{Discovering}
		w.m.SetKeys(w.keys)
		w.m.Tick(w.now)
	case "up":
		for _, s := range args {
			sw := w.switches[s]
			r := Report{Fresh: sw.fresh, Keys: sw.keys}
			if sw.assignment != nil {
				a := *sw.assignment
				r.Assignment = &a
			}
			sw.connected, sw.fresh = true, false
			w.m.SwitchUp(w.now, s, r)
			w.drain()
		}
	case "down":
		for _, s := range args {
			w.switches[s].connected = false
			w.pending = slices.DeleteFunc(w.pending, func(i Install) bool { return i.Switch == s })
			w.m.SwitchDown(w.now, s)
			w.drain()
		}
	case "copy-record":
		w.copied = w.record
	case "wipe":
		for _, s := range args {
			*w.switches[s] = simSwitch{fresh: true, born: w.now}
		}
	case "meddle":
		w.switches[args[0]].assignment.Epoch = uint16(num(val("epoch")))
	case "erase":
		w.switches[args[0]].assignment = nil
	case "deliver":
		if len(args) == 0 {
			for len(w.pending) > 0 {
				w.deliver(0, nil)
			}
		}
		for _, s := range args {
			w.deliver(w.outstanding(s), nil)
		}
	case "refuse":
		w.deliver(w.outstanding(args[0]), errors.New("chain_config is full"))
	case "persist":
		w.persist = nil
		if args[0] == "fails" {
			w.persist = errors.New("the disk is full")
		}
	case "run":
		w.quiet = has("quiet")
		end := w.now + dur(args[0])
		for {
			next, ok := w.m.Next(w.now)
			if !ok || next > end {
				break
			}
			w.now = next
			w.m.Tick(w.now)
			w.drain()
		}
		w.now = end
		w.m.Tick(w.now)
		w.drain()
		w.quiet = false
	case "keys":
		w.keys = num(args[0])
		w.m.SetKeys(w.keys)
	case "propose":
		ch := Change{Members: vals("members")}
		if has("members") && ch.Members[0] == "" {
			ch.Members = []string{}
		}
		if has("lease") {
			l := dur(val("lease"))
			ch.Lease = &l
		}
		if has("frozen") {
			f := val("frozen") == "true"
			ch.Frozen = &f
		}
		ch.Rest = has("rest")
		w.m.Propose(w.now, OpID(num(args[0])), ch)
	case "add":
		w.m.AddKeys(w.now, OpID(num(args[0])))
	case "remove":
		w.m.RemoveKeys(w.now, OpID(num(args[0])))
	case "take":
		w.m.DetachKeys(w.now, OpID(num(args[0])))
	case "put-back":
		w.m.ReattachKeys(w.now, OpID(num(args[0])))
	case "abandon":
		w.m.AbandonKeys(w.now, OpID(num(args[0])), errors.New("nobody waits"))
	case "done":
		op := OpID(num(args[0]))
		w.m.KeysDone(w.now, op, w.running[op], failure(), has("again"))
	case "redriven":
		w.m.Redriven(w.now, w.redrive, failure())
	case "alive":
		for _, s := range args {
			w.m.Alive(s)
		}
	case "working":
		for _, s := range args {
			w.m.Working(w.now, s)
		}
	case "untold":
		w.m.Untold(w.now, args[0], errors.New("no answer"))
		w.drain()
	case "late":
		w.m.Late(w.now, dur(args[0]))
	case "lease-reply":
		epoch := 0
		if a := w.switches[args[0]].assignment; a != nil {
			epoch = int(a.Epoch)
		}
		if has("epoch") {
			epoch = num(val("epoch"))
		}
		number := w.leased[args[0]]
		if has("before") {
			number -= uint16(num(val("before")))
		}
		w.m.LeaseReply(w.now, args[0], LeaseAnswer{number, uint64(num(val("clock"))), dur(val("left")), uint16(epoch),
			!has("refused")})
	case "clock":
		w.switches[args[0]].born = w.now
	case "leases":
		w.unleased = func(sw string) bool { return args[0] == "lost" && (len(args) == 1 || slices.Contains(args[1:], sw)) }
	case "recover":
		w.m.Recover(w.now, OpID(num(args[0])), args[1])
	case "erased":
		if err := failure(); err != nil {
			w.m.EraseFailed(w.now, w.erase, err)
			break
		}
		*w.switches[args[0]] = simSwitch{born: w.now, connected: true}
		w.m.SwitchUp(w.now, args[0], Report{Fresh: true})
	case "rejoins":
		w.m.Recover(w.now, OpID(num(args[0])), w.rejoin.Switch)
	case "rejoined":
		err := failure()
		if has("silent") {
			err = fmt.Errorf("%w: no answer in a second", ErrSilent)
		}
		w.m.Rejoined(w.now, w.rejoin.Seq, err)
	case "forget-wanted":
		r := *w.record
		r.Wanted = nil
		w.record = &r
	case "copied":
		w.m.Copied(w.now, w.copy, failure())
	case "switches":
		leaving := map[string]bool{}
		for _, s := range vals("leaving") {
			leaving[s] = true
		}
		for _, s := range args {
			if w.switches[s] == nil {
				w.switches[s] = &simSwitch{fresh: true, born: w.now}
			}
		}
		if has("members") {
			o := w.o
			o.Members = vals("members")
			w.m.Want(o)
		}
		w.m.SetSwitches(w.now, args, leaving)
		w.drain()
		w.pending = slices.DeleteFunc(w.pending, func(i Install) bool { return !slices.Contains(args, i.Switch) })
		var needed []string
		for _, s := range args {
			if w.m.Needs(s) {
				needed = append(needed, s)
			}
		}
		fmt.Fprintf(&w.out, "needed: %s\n", strings.Join(needed, ", "))
	case "phases":
		for i, p := range w.seen {
			w.out.WriteString([]string{"", " -> "}[min(i, 1)] + p.String())
		}
		w.out.WriteString("\n")
		w.seen = w.seen[len(w.seen)-1:]
	case "status":
		s := w.m.Status(w.now)
		fmt.Fprintf(&w.out, "%v, ready %v", s.Config, s.Ready)
		if !s.Ready {
			fmt.Fprintf(&w.out, " (%s)", s.Reason)
		}
		if s.LeaseGiven != s.Config.Lease {
			fmt.Fprintf(&w.out, ", leases of %v now", s.LeaseGiven)
		}
		w.out.WriteString("\n")
		for _, m := range s.Members {
			fmt.Fprintf(&w.out, "  %s %v ready=%v lease=%v\n", m.Switch, m.Role, m.Ready, m.LeaseLive)
		}
		if len(s.Members) < s.Length {
			fmt.Fprintf(&w.out, "  short: %d of %d\n", len(s.Members), s.Length)
		}
		for _, x := range s.Missing {
			fmt.Fprintf(&w.out, "  %s is missing: %s\n", x.Switch, x.Why)
		}
	default:
		d.Fatalf(w.t, "unknown command")
	}
}

func (w *world) outstanding(s string) int {
	i := slices.IndexFunc(w.pending, func(i Install) bool { return i.Switch == s })
	if i < 0 {
		w.t.Fatalf("nothing is being installed at %s", s)
	}
	return i
}

func (w *world) deliver(n int, err error) {
	i := w.pending[n]
	w.pending = slices.Delete(w.pending, n, n+1)
	if err == nil {
		a := i.Assignment
		w.switches[i.Switch].assignment = &a
	}
	w.m.Installed(w.now, i.Switch, i.Seq, err)
	w.drain()
}

// drain executes the machine's actions. Actions that need a command of the scenario stay
// outstanding.
func (w *world) drain() {
	for {
		w.look()
		actions := w.m.Actions()
		if len(actions) == 0 {
			return
		}
		for _, a := range actions {
			l, isLease := a.(Lease)
			if !isLease || !w.quiet {
				fmt.Fprintf(&w.out, "%s%v\n", w.stamp(), a)
			}
			switch a := a.(type) {
			case Persist:
				if w.persist == nil {
					r := a.Record
					w.record = &r
				}
				w.m.Persisted(w.now, a.Seq, w.persist)
				w.look()
			case Install:
				w.pending = append(w.pending, a)
			case Lease:
				w.lease(l)
			case Reconnect:
				w.switches[a.Switch].connected = false
				w.pending = slices.DeleteFunc(w.pending, func(i Install) bool { return i.Switch == a.Switch })
			case Redrive:
				w.redrive = a.Epoch
			case Erase:
				w.erase = a.Seq
			case Copy:
				w.copy = a.Seq
			case CancelCopy:
				w.copy = 0
			case Rejoin:
				w.rejoin = a
			case InsertKeys:
				w.running[a.Op] = a.Attempt
			case OpenKeys:
				w.running[a.Op] = a.Attempt
			case DeleteKeys:
				w.running[a.Op] = a.Attempt
			case WriteKeys:
				w.running[a.Op] = a.Attempt
			case DeleteValues:
				w.running[a.Op] = a.Attempt
			case DrainKeys:
				w.running[a.Op] = a.Attempt
			}
		}
	}
}

// look records the phase, and the transition to it.
func (w *world) look() {
	last, p := w.seen[len(w.seen)-1], w.m.Phase(w.now)
	if p != last {
		w.seen = append(w.seen, p)
		w.taken[[2]Phase{last, p}] = true
	}
}

func (w *world) stamp() string {
	if w.now == 0 {
		return ""
	}
	return fmt.Sprintf("[%v] ", w.now)
}

// lease sends a switch's answer to a LEASE.
func (w *world) lease(l Lease) {
	s := w.switches[l.Switch]
	w.leased[l.Switch] = l.Number
	if !s.connected || w.unleased(l.Switch) {
		return
	}
	clock := uint64((w.now - s.born).Microseconds()) + 1
	epoch := uint16(0)
	if s.assignment != nil {
		epoch = s.assignment.Epoch
	}
	left := time.Duration(max(0, int64(l.Clock)+l.Duration.Microseconds()-int64(clock))) * time.Microsecond
	w.m.LeaseReply(w.now, l.Switch, LeaseAnswer{l.Number, clock, left, epoch, epoch == l.Epoch})
}

// TestNextWhenLate: a Tick is due, and an input comes before the Tick. If the input does not do the
// Tick's work, Next still returns the time of the Tick.
func TestNextWhenLate(t *testing.T) {
	w := &world{t: t, taken: map[[2]Phase]bool{}}
	for _, line := range []string{"network switches=(s1,s2) lease=200ms", "up s1 s2", "deliver s2", "deliver s1", "run 1s quiet"} {
		name, args, err := datadriven.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		w.command(&datadriven.TestData{Cmd: name, CmdArgs: args})
		w.drain()
	}
	due, ok := w.m.Next(w.now)
	l := w.m.view["s1"].lease
	if !ok || !l.heard {
		t.Fatalf("nothing is due, or s1 has no lease: %s", w.out.String())
	}
	late := due + time.Millisecond
	w.m.LeaseReply(late, "s1", LeaseAnswer{Number: w.leased["s1"], Clock: l.clock, Epoch: 1, Granted: true})
	if next, ok := w.m.Next(late); !ok || next != due {
		t.Errorf("at %v, what was due at %v is due at %v (%v)", late, due, next, ok)
	}
}
