package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/netcraq/netcraq/client/etcd/placement"
)

// TestScenarios runs the files in testdata. Each is a story: the input is commands, the output is
// the planner's decisions. Commands:
//
//	network CHAIN=(CELL,SLOTS)...   a new world; cells in bytes
//	limits NAME=X...      a new planner with DefaultLimits, except for these (admit-after=10s burst=4 ...)
//	value KEY [BYTES|absent|unknown] [lease]    the key's value in etcd (default: 100 bytes)
//	heat KEY=READS or KEY=(READS,WRITES) ...    the key's rates from now on. KEY=?: its heat is
//	                      unknown; KEY=none: moreover, the input lacks it unless it is placed
//	source-down on|off    the heat of all keys is unknown
//	ready CHAIN on|off    whether the chain is ready
//	leaving CHAIN on|off  whether the chain is about to be removed
//	fault KEY value-too-large|bypassed|slot-lost|slot-unreachable|forged    the slot's fault, until the
//	                      key is removed
//	others CHAIN N        other users of the network have N slots
//	dictionary N          Input.Dictionary from now on
//	pin, unpin KEY; exclude, include, clear KEY [prefix]    the operator's rules
//	fail KEY on|off       whether moves of the key fail
//	run D [every=D]       time passes, with a decision each second. Prints moves with their times and
//	                      carries them out
//	why KEY...            prints the last verdicts
//	show                  prints the placed keys
//	restart               replaces the planner by a new one, which recalls the last one's Away
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := &world{}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t, w.d = t, d
			w.out.Reset()
			w.command()
			if w.out.Len() == 0 {
				return "ok\n"
			}
			return w.out.String()
		})
	})
}

type simChain struct {
	cell, slots, others int
	down, leaving       bool
}

type world struct {
	t          *testing.T
	d          *datadriven.TestData
	out        strings.Builder
	now        time.Time
	planner    *Planner
	rules      *Rules
	order      []string
	chains     map[string]*simChain
	keys       map[string]*Key
	failing    map[string]bool
	sourceDown bool

	dictionary uint32
	said       map[string]Verdict
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *world) number(s string) float64 {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		w.d.Fatalf(w.t, "%v", err)
	}
	return x
}

func (w *world) duration(s string) time.Duration {
	x, err := time.ParseDuration(s)
	if err != nil {
		w.d.Fatalf(w.t, "%v", err)
	}
	return x
}

func (w *world) key(name string) *Key {
	k := w.keys[name]
	if k == nil {
		k = &Key{Name: name, Value: Value{Known: true, Bytes: 100}}
		w.keys[name] = k
	}
	return k
}

func (w *world) newPlanner(l Limits) {
	p, err := NewPlanner(l)
	if err != nil {
		w.d.Fatalf(w.t, "%v", err)
	}
	w.planner = p
}

func (w *world) command() {
	args := w.d.CmdArgs
	arg := func(i int) string {
		if i < len(args) {
			return args[i].Key
		}
		return ""
	}
	switch w.d.Cmd {
	case "network":
		*w = world{t: w.t, d: w.d, now: start, rules: NewRules("/gw/"), chains: map[string]*simChain{},
			keys: map[string]*Key{}, failing: map[string]bool{}}
		for _, a := range args {
			w.chains[a.Key] = &simChain{cell: int(w.number(a.Vals[0])), slots: int(w.number(a.Vals[1]))}
			w.order = append(w.order, a.Key)
		}
		w.newPlanner(DefaultLimits())
	case "limits":
		l := DefaultLimits()
		numbers := map[string]*float64{"min-score": &l.MinScore, "write-cost": &l.WriteCost, "replace-ratio": &l.ReplaceRatio, "per-minute": &l.MovesPerMinute}
		times := map[string]*time.Duration{"admit-after": &l.AdmitAfter,
			"min-residency": &l.MinResidency, "gone": &l.Gone, "cooldown": &l.Cooldown, "idle": &l.Idle,
			"retry": &l.Retry}
		for _, a := range args {
			if x := numbers[a.Key]; x != nil {
				*x = w.number(a.Vals[0])
			} else if x := times[a.Key]; x != nil {
				*x = w.duration(a.Vals[0])
			} else if a.Key == "burst" {
				l.Burst = int(w.number(a.Vals[0]))
			} else {
				w.d.Fatalf(w.t, "no limit %s", a.Key)
			}
		}
		w.newPlanner(l)
	case "value":
		k := w.key(arg(0))
		k.Value = Value{Known: true, Bytes: k.Value.Bytes}
		for i := 1; i < len(args); i++ {
			switch arg(i) {
			case "absent":
				k.Value.Absent = true
			case "unknown":
				k.Value.Known = false
			case "lease":
				k.Value.Lease = true
			default:
				k.Value.Bytes = int(w.number(arg(i)))
			}
		}
	case "heat":
		for _, a := range args {
			k := w.key(a.Key)
			switch {
			case a.Vals[0] == "none" && !k.Placed():
				delete(w.keys, a.Key)
			case a.Vals[0] == "?" || a.Vals[0] == "none":
				k.Heard = false
			default:
				k.Heard, k.Heat = true, Heat{Reads: w.number(a.Vals[0])}
				if len(a.Vals) > 1 {
					k.Heat.Writes = w.number(a.Vals[1])
				}
			}
		}
	case "source-down":
		w.sourceDown = arg(0) == "on"
	case "ready":
		w.chains[arg(0)].down = arg(1) == "off"
	case "leaving":
		w.chains[arg(0)].leaving = arg(1) == "on"
	case "fault":
		w.key(arg(0)).Fault = placement.Fault(arg(1))
	case "dictionary":
		w.dictionary = uint32(w.number(arg(0)))
	case "others":
		w.chains[arg(0)].others = int(w.number(arg(1)))
	case "fail":
		w.failing[arg(0)] = arg(1) == "on"
	case "pin", "unpin", "exclude", "include", "clear":
		s := Subject{arg(0), arg(1) == "prefix"}
		if w.d.Cmd == "unpin" || w.d.Cmd == "clear" {
			w.rules.Clear(s)
			return
		}
		if err := w.rules.Set(s, Choice(w.d.Cmd)); err != nil {
			fmt.Fprintln(&w.out, err)
		}
		w.key(arg(0)) // the shell also reads keys that rules name
		if s.Prefix {
			delete(w.keys, arg(0))
		}
	case "run":
		every := time.Second
		for _, a := range args {
			if a.Key == "every" {
				every = w.duration(a.Vals[0])
			}
		}
		for end := w.now.Add(w.duration(arg(0))); w.now.Before(end); {
			w.now = w.now.Add(every)
			w.decide()
		}
	case "why":
		for _, a := range args {
			v, ok := w.said[a.Key]
			if !ok {
				fmt.Fprintf(&w.out, "%s: not looked at\n", a.Key)
				continue
			}
			at := "not placed"
			if w.key(a.Key).Placed() {
				at = "in " + w.key(a.Key).Chain
			}
			fmt.Fprintf(&w.out, "%s %s: %s: %s\n", a.Key, at, v.Code, v.Reason)
		}
	case "show":
		for _, k := range w.sorted() {
			if k.Placed() {
				fmt.Fprintf(&w.out, "%s in %s since %v\n", k.Name, k.Chain, k.Since.Sub(start))
			}
		}
	case "restart":
		away := w.planner.Away()
		w.newPlanner(w.planner.limits)
		w.planner.Recall(away)
	default:
		w.d.Fatalf(w.t, "no command %s", w.d.Cmd)
	}
}

func (w *world) sorted() []*Key {
	var out []*Key
	for _, k := range w.keys {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })
	return out
}

func (w *world) free(name string) int {
	n := w.chains[name].slots - w.chains[name].others
	for _, k := range w.keys {
		if k.Chain == name {
			n--
		}
	}
	return n
}

func (w *world) decide() {
	in := Input{Dictionary: w.dictionary, Now: w.now, Rules: w.rules}
	for _, k := range w.sorted() {
		c := *k
		c.Heard = c.Heard && !w.sourceDown
		in.Keys = append(in.Keys, c)
	}
	for _, name := range w.order {
		in.Chains = append(in.Chains, Chain{Name: name, Cell: w.chains[name].cell, Free: w.free(name),
			Ready: !w.chains[name].down, Leaving: w.chains[name].leaving})
	}
	moves, verdicts := w.planner.Decide(in)
	w.said = map[string]Verdict{}
	for _, v := range verdicts {
		w.said[v.Key] = v
		if v.Reason == "" {
			w.t.Errorf("%s has no reason", v.Key)
		}
	}
	for _, m := range moves {
		k := w.key(string(m.Key))
		fmt.Fprintf(&w.out, "%v %s %s %s: %s", w.now.Sub(start), m.Op, m.Key, m.Chain, m.Reason)
		if w.failing[k.Name] {
			fmt.Fprint(&w.out, " (fails)")
		} else if m.Op == Place {
			k.Chain, k.Since, k.Fault = m.Chain, w.now, placement.NoFault
		} else {
			k.Chain, k.Since, k.Fault = "", time.Time{}, placement.NoFault
		}
		fmt.Fprintln(&w.out)
		if w.free(m.Chain) < 0 {
			w.t.Errorf("more keys than slots in %s", m.Chain)
		}
	}
}
