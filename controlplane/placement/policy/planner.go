package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// Planner decides which keys should be placed. It remembers since when keys have been hot or not
// worth their slots, and when each removed key was removed. It is not safe for concurrent use.
type Planner struct {
	limits Limits

	hot      map[string]time.Time // since when each candidate has qualified for a slot
	gone     map[string]time.Time // since when each placed key has not existed
	idle     map[string]time.Time // since when each placed key has been read too little
	costly   map[string]time.Time // since when each placed key's writes have cost more than its reads save
	away     map[string]Absence
	budget   float64 // number of moves that may be made now
	budgetAt time.Time
}

// Absence is how long a key stays away, and why.
type Absence struct {
	Until time.Time `json:"until"`
	Code  Code      `json:"code"`
	// Bytes is the size of the value that did not fit, so that a smaller value may be tried. It is
	// 0 if the size does not matter.
	Bytes int `json:"bytes,omitempty"`
	// Dictionary is the newest dictionary with which the value did not fit.
	Dictionary uint32 `json:"dictionary,omitempty"`
}

// NewPlanner makes a planner with limits, which must be valid (Check).
func NewPlanner(l Limits) (*Planner, error) {
	if err := l.Check(); err != nil {
		return nil, err
	}
	return &Planner{limits: l, hot: map[string]time.Time{}, gone: map[string]time.Time{},
		idle: map[string]time.Time{}, costly: map[string]time.Time{}, away: map[string]Absence{}}, nil
}

// Limits returns the planner's limits.
func (p *Planner) Limits() Limits { return p.limits }

// maxAway bounds how many absences are remembered.
const maxAway = 4096

// Away returns the absent keys, for callers that keep them across a restart.
func (p *Planner) Away() map[string]Absence { return maps.Clone(p.away) }

// Recall takes over the result of an earlier planner's Away.
func (p *Planner) Recall(away map[string]Absence) { p.away = maps.Clone(away) }

// candidate is a key that a round considers.
type candidate struct {
	*Key
	verdict Verdict
	score   float64
	pinned  bool
	under   string // the prefix of the pin that covers the key
	leaving bool
}

// round is one decision.
type round struct {
	p      *Planner
	in     Input
	chains map[string]*Chain // the input's chains, with their remaining free slots
	all    []*candidate
	moves  []Move
}

// Decide returns the moves to make now, in order, and every considered key's verdict (by name). It
// assumes that the moves succeed. After a failed move, the next call decides again.
func (p *Planner) Decide(in Input) ([]Move, []Verdict) {
	r := &round{p: p, in: in, chains: map[string]*Chain{}}
	for _, c := range in.Chains {
		r.chains[c.Name] = &c
	}
	p.refill(in.Now)
	for i := range in.Keys {
		k := &in.Keys[i]
		c := &candidate{Key: k, verdict: Verdict{Key: k.Name, Chain: k.Chain, Heat: k.Heat, Heard: k.Heard}}
		if k.Heard && !k.Heat.Valid() {
			c.Key = &Key{Name: k.Name, Value: k.Value, Chain: k.Chain, Since: k.Since, Fault: k.Fault}
			c.verdict.Heat, c.verdict.Heard = Heat{}, false
		}
		if c.Heard {
			c.score = p.limits.Score(c.Heat)
			c.verdict.Score = c.score
		}
		choice, by, _ := in.Rules.Of(k.Name)
		c.pinned = choice == Pin
		if c.pinned && by.Prefix {
			c.under = by.String()
		}
		r.all = append(r.all, c)
	}
	slices.SortFunc(r.all, func(a, b *candidate) int { return cmp.Compare(a.Name, b.Name) })
	r.leave()
	r.enter()
	p.forget(r.all, in.Now)
	verdicts := make([]Verdict, len(r.all))
	for i, c := range r.all {
		verdicts[i] = c.verdict
	}
	return r.moves, verdicts
}

func (p *Planner) refill(now time.Time) {
	full := float64(p.limits.Burst)
	if p.budgetAt.IsZero() {
		p.budget = full
	} else if d := now.Sub(p.budgetAt); d > 0 {
		p.budget = min(full, p.budget+d.Minutes()*p.limits.MovesPerMinute)
	}
	p.budgetAt = now
}

// forget drops what the planner remembers about keys that no longer matter.
func (p *Planner) forget(all []*candidate, now time.Time) {
	there := map[string]*candidate{}
	for _, c := range all {
		there[c.Name] = c
	}
	maps.DeleteFunc(p.hot, func(k string, _ time.Time) bool { return there[k] == nil || there[k].Placed() })
	gone := func(k string, _ time.Time) bool { return there[k] == nil || !there[k].Placed() }
	maps.DeleteFunc(p.gone, gone)
	maps.DeleteFunc(p.idle, gone)
	maps.DeleteFunc(p.costly, gone)
	maps.DeleteFunc(p.away, func(_ string, a Absence) bool { return !now.Before(a.Until) })
	for len(p.away) > maxAway {
		first := ""
		for k, a := range p.away {
			if first == "" || a.Until.Before(p.away[first].Until) || a.Until.Equal(p.away[first].Until) && k < first {
				first = k
			}
		}
		delete(p.away, first)
	}
}

// since notes that a condition holds for a key, and returns for how long it has held.
func since(m map[string]time.Time, key string, now time.Time) time.Duration {
	at, ok := m[key]
	if !ok || at.After(now) {
		m[key] = now
		return 0
	}
	return now.Sub(at)
}

func (c *candidate) say(code Code, format string, args ...any) {
	c.verdict.Code, c.verdict.Reason = code, fmt.Sprintf(format, args...)
}

func (c *candidate) sayPinned() {
	if c.under != "" {
		c.say(Pinned, "pinned by the rule for %s", c.under)
		return
	}
	c.say(Pinned, "pinned by an operator")
}

// move adds the move that a candidate's verdict requires.
func (r *round) move(c *candidate, op Op, chain string) {
	c.verdict.Move = op
	r.moves = append(r.moves, Move{Op: op, Key: []byte(c.Name), Chain: chain, Code: c.verdict.Code,
		Reason: c.verdict.Reason})
	if op == Place {
		r.chains[chain].Free--
		delete(r.p.hot, c.Name)
		delete(r.p.away, c.Name)
		return
	}
	c.leaving = true
	if ch := r.chains[chain]; ch != nil {
		ch.Free++
	}
	if c.verdict.Code == Leaving { // the key may be placed in another chain at once, so it does not stay away
		return
	}
	a := Absence{Until: r.in.Now.Add(r.p.limits.Cooldown), Code: Resting}
	if c.Fault != placement.NoFault {
		a = Absence{Until: r.in.Now.Add(r.p.limits.Retry), Code: c.verdict.Code}
		switch c.Fault {
		case placement.SlotLost:
			a.Until = r.in.Now.Add(r.p.limits.AdmitAfter)
		case placement.SlotUnreachable:
			a.Until = r.in.Now.Add(r.p.limits.Cooldown)
		}
		if c.Fault == placement.ValueTooLarge {
			a.Dictionary = r.in.Dictionary
			if c.Value.Known {
				a.Bytes = c.Value.Bytes
			}
		}
	}
	r.p.away[c.Name] = a
}

// spend takes n moves from the budget, if the budget has that many. It reports whether it did.
func (r *round) spend(n int) bool {
	if r.p.budget < float64(n) {
		return false
	}
	r.p.budget -= float64(n)
	return true
}

// barred gives a verdict to a key that may not be placed whatever its heat. It reports whether it
// gave one.
func (r *round) barred(c *candidate) bool {
	choice, by, byDefault := r.in.Rules.Of(c.Name)
	pinned := ""
	if c.pinned {
		pinned = "pinned, but "
	}
	switch {
	case choice == Exclude && byDefault && by.Name == r.in.Rules.own:
		c.say(Own, "the gateways keep their own state under %s", by)
	case choice == Exclude && byDefault && by.Prefix:
		c.say(Excluded, "excluded by default: what is under %s gives access, and is placed only if a rule about that, or about less, says so", by)
	case choice == Exclude && byDefault:
		c.say(Excluded, "excluded by default: it is read to see whether etcd itself answers")
	case choice == Exclude && by.Prefix:
		c.say(Excluded, "excluded by the rule for %s", by)
	case choice == Exclude:
		c.say(Excluded, "excluded by an operator")
	case c.Value.Known && c.Value.Lease:
		c.say(Leased, "%sattached to a lease: etcd would delete it by itself", pinned)
	case c.Fault == placement.Bypassed:
		c.say(Bypassed, "%sbypassed: etcd has a newer value than the network, which no gateway has written", pinned)
	case c.Fault == placement.ValueTooLarge:
		c.say(ValueTooLarge, "%sits value of %s does not fit a cell, compressed or not", pinned, bytesOf(c.Value.Bytes))
	case c.Fault == placement.SlotLost:
		c.say(SlotLost, "%sits slot was lost or changed by somebody else: the placement is made anew", pinned)
	case c.Fault == placement.SlotUnreachable:
		c.say(SlotUnreachable, "%sits slot does not answer a gateway that would write the key", pinned)
	case c.Fault == placement.Forged:
		c.say(Forged, "%sits slot had what no gateway has written", pinned)
	case r.narrow(c):
		c.say(Narrow, "%sno chain's slots hold a sealed cell, which has %s at least: it takes a chain of the profile 1024, or a wider one", pinned, bytesOf(slotcodec.LeastSlot))
	case c.Value.Known && !r.fitsSome(c):
		largest := 0
		for _, ch := range r.chains {
			largest = max(largest, ch.Cell)
		}
		c.say(TooLarge, "%stoo large: its value has %s, a cell has %s, the seal's %d among them, and compression by %v is the most that is hoped for (a wider profile would take it)", pinned,
			bytesOf(c.Value.Bytes), bytesOf(largest), slotcodec.SealOverhead, r.p.limits.Compression)
	default:
		return false
	}
	return true
}

// fits reports whether a value may fit a chain's cells.
func (r *round) fits(c *candidate, ch *Chain) bool {
	return ch.Cell >= slotcodec.LeastSlot && (c.Value.Absent || !c.Value.Known ||
		float64(c.Value.Bytes) <= float64(ch.Cell-overhead)*r.p.limits.Compression)
}

// narrow reports whether a key cannot be placed, or stay placed, because slots are too small for a
// sealed cell. It looks at the slots of the key's chain or, if the key is not placed, of all
// chains.
func (r *round) narrow(c *candidate) bool {
	if ch := r.chains[c.Chain]; ch != nil {
		return ch.Cell < slotcodec.LeastSlot
	}
	for _, ch := range r.chains {
		if ch.Cell >= slotcodec.LeastSlot {
			return false
		}
	}
	return len(r.chains) > 0
}

func (r *round) fitsSome(c *candidate) bool {
	if len(r.chains) == 0 {
		return true
	}
	if ch := r.chains[c.Chain]; ch != nil {
		return r.fits(c, ch)
	}
	for _, ch := range r.chains {
		if r.fits(c, ch) {
			return true
		}
	}
	return false
}

// leave decides which placed keys must go, regardless of the candidates.
func (r *round) leave() {
	l, now := r.p.limits, r.in.Now
	for _, c := range r.all {
		if !c.Placed() {
			continue
		}
		if ch := r.chains[c.Chain]; ch != nil && !ch.Ready {
			c.say(NoChain, "placed; the chain %s is not ready, and nothing is moved there", c.Chain)
			continue
		}
		if r.barred(c) {
			r.move(c, Remove, c.Chain)
			continue
		}
		if ch := r.chains[c.Chain]; ch != nil && ch.Leaving {
			c.say(Leaving, "the chain %s is to hold no keys any more", c.Chain)
			r.move(c, Remove, c.Chain)
			continue
		}
		if c.Value.Known && c.Value.Absent && !r.named(c) {
			d := since(r.p.gone, c.Name, now)
			c.say(KeyAbsent, "placed; it does not exist, for %v; it is removed after %v, unless a rule is about this very key", short(d), l.Gone)
			if d >= l.Gone && r.spend(1) {
				c.say(KeyAbsent, "it does not exist, for %v", short(d))
				r.move(c, Remove, c.Chain)
			}
			continue
		}
		delete(r.p.gone, c.Name)
		if c.pinned {
			delete(r.p.idle, c.Name)
			c.sayPinned()
			continue
		}
		if !c.Heard {
			c.say(NoRate, "placed; how often it is read is not known, so it stays")
			continue
		}
		if c.score < 0 {
			d := since(r.p.costly, c.Name, now)
			c.say(Costly, "its writes (%s, each worth %v reads) cost more than its reads (%s) save, for %v", rate(c.Heat.Writes), l.WriteCost, rate(c.Heat.Reads), short(d))
			if d >= l.AdmitAfter && now.Sub(c.Since) >= l.MinResidency && r.spend(1) {
				c.verdict.Code = Written
				r.move(c, Remove, c.Chain)
			}
			continue
		}
		delete(r.p.costly, c.Name)
		if c.score < l.MinScore {
			d := since(r.p.idle, c.Name, now)
			c.say(Quiet, "read too little (score %s, worth a slot from %s) for %v; it is removed after %v", rate(c.score), rate(l.MinScore), short(d), l.Idle)
			if d >= l.Idle && r.spend(1) {
				c.say(TooCold, "read too little (score %s, worth a slot from %s) for %v", rate(c.score), rate(l.MinScore), short(d))
				r.move(c, Remove, c.Chain)
			}
			continue
		}
		delete(r.p.idle, c.Name)
		c.say(Serves, "score %s: %s reads less %v for each of %s writes", rate(c.score), rate(c.Heat.Reads), l.WriteCost, rate(c.Heat.Writes))
	}
}

// enter decides which candidates are placed, and which keys make room for them.
func (r *round) enter() {
	var pinned, heard []*candidate
	for _, c := range r.all {
		switch {
		case c.Placed():
		case r.barred(c) || r.staysAway(c):
			delete(r.p.hot, c.Name)
		case !c.Value.Known:
			c.say(Unknown, "etcd has not been asked yet whether it can be placed")
		case c.Value.Absent && !r.named(c):
			c.say(KeyAbsent, "it does not exist: a read of it may be made for the store's revision alone, which the network has late; a rule about this very key would place it")
			delete(r.p.hot, c.Name)
		case c.pinned:
			pinned = append(pinned, c)
		case !c.Heard:
			delete(r.p.hot, c.Name)
			c.say(Unknown, "how often it is read is not known")
		default:
			heard = append(heard, c)
		}
	}
	for _, c := range pinned {
		r.enterPinned(c)
	}
	// chance says whether a candidate can use a free slot or must replace a key. This is decided
	// before the first candidate is placed, so that it is decided for all candidates in the same
	// state, and the times that since returns stay comparable.
	type chance struct {
		c    *candidate
		room bool
	}
	var chances []chance
	for _, c := range heard {
		room := r.room(c) != nil
		if r.warm(c, room, r.coldest(c, false)) {
			chances = append(chances, chance{c, room})
		}
	}
	slices.SortStableFunc(chances, func(a, b chance) int { return cmp.Compare(b.c.score, a.c.score) })
	for _, n := range chances {
		r.enterHot(n.c, n.room)
	}
}

// named reports whether an operator has made a choice about exactly this key, and not only about a
// prefix.
//
// Only such a key is placed while it does not exist. Some clients read a key that never exists,
// only to get the store's revision from the answer's header. For example, kube-apiserver does so
// before each list that it answers from its cache, to learn how recent the cache must be
// (GetCurrentResourceVersion). The revision of an answer from the network may be older, and then
// the list would be, too. A placed key that is deleted keeps its slot for a while, because its
// readers knew the key while it existed.
func (r *round) named(c *candidate) bool {
	choice, by, byDefault := r.in.Rules.Of(c.Name)
	return choice != "" && !by.Prefix && !byDefault
}

// staysAway gives a verdict to a key that was removed a short while ago.
func (r *round) staysAway(c *candidate) bool {
	a, ok := r.p.away[c.Name]
	left := a.Until.Sub(r.in.Now)
	switch {
	case !ok || left <= 0 || c.pinned && a.Code == Resting:
		return false
	case a.Code == ValueTooLarge && (c.Value.Known && c.Value.Bytes < a.Bytes || r.in.Dictionary > a.Dictionary):
		return false
	case a.Code == ValueTooLarge:
		c.say(ValueTooLarge, "a value of %s did not fit a cell, compressed or not; tried again with a smaller one, with a new dictionary, or in %v", bytesOf(a.Bytes), short(left))
	case a.Code == Bypassed:
		c.say(Bypassed, "was written past the gateways; tried again in %v", short(left))
	case a.Code == Forged:
		c.say(Forged, "its slot had what no gateway has written; tried again in %v", short(left))
	default:
		c.say(Resting, "removed a short while ago; it may come again in %v", short(left))
	}
	return true
}

// room returns, among the ready chains whose cells fit a key, the chain with the most free slots.
// It returns nil if no chain has room.
func (r *round) room(c *candidate) *Chain {
	var best *Chain
	for _, ch := range r.in.Chains {
		if ch := r.chains[ch.Name]; ch.Ready && !ch.Leaving && ch.Free > 0 && r.fits(c, ch) &&
			(best == nil || ch.Free > best.Free) {
			best = ch
		}
	}
	return best
}

// coldest returns the placed key with the lowest score among the keys that may make room for a
// candidate. It returns nil if there is none. If any is set, MinResidency does not protect keys.
func (r *round) coldest(c *candidate, any bool) *candidate {
	var worst *candidate
	for _, v := range r.all {
		if !v.Placed() || v.leaving || v.pinned || !v.Heard || !any && r.in.Now.Sub(v.Since) < r.p.limits.MinResidency {
			continue
		}
		if ch := r.chains[v.Chain]; ch != nil && ch.Ready && !ch.Leaving && r.fits(c, ch) &&
			(worst == nil || v.score < worst.score) {
			worst = v
		}
	}
	return worst
}

func (r *round) anyReady() bool {
	return slices.ContainsFunc(r.in.Chains, func(ch Chain) bool { return ch.Ready && !ch.Leaving })
}

func (r *round) enterPinned(c *candidate) {
	ch := r.room(c)
	if ch == nil {
		v := r.coldest(c, true)
		if v == nil {
			if !r.anyReady() {
				c.say(NoChain, "pinned, but no chain is ready")
			} else {
				c.say(Full, "pinned, but every slot that it fits is taken by other pinned keys, by keys of others, or by keys whose heat is not known")
			}
			return
		}
		v.say(MakeRoom, "the coldest (score %s): makes room for %s, which is pinned", rate(v.score), placement.Printable(c.Name))
		r.move(v, Remove, v.Chain)
		ch = r.chains[v.Chain]
	}
	c.sayPinned()
	r.move(c, Place, ch.Name)
}

// warm reports whether a candidate has been hot enough for long enough. If not, it gives the
// candidate the verdict that says so.
func (r *round) warm(c *candidate, room bool, victim *candidate) bool {
	l := r.p.limits
	bar := l.MinScore
	if !room && victim != nil {
		bar = max(bar, l.ReplaceRatio*victim.score)
	}
	switch {
	case c.score < 0:
		c.say(Written, "its writes (%s, each worth %v reads) would cost more than its reads (%s) save", rate(c.Heat.Writes), l.WriteCost, rate(c.Heat.Reads))
	case c.score < l.MinScore:
		c.say(Cold, "score %s: worth a slot from %s", rate(c.score), rate(l.MinScore))
	case !r.anyReady():
		c.say(NoChain, "score %s, but no chain is ready", rate(c.score))
	case !room && victim == nil:
		c.say(Full, "score %s; every slot that it fits is in use by a pinned key, one that came a short while ago, or one of others", rate(c.score))
	case c.score < bar:
		c.say(Full, "score %s; all slots that it fits are in use, and the coldest key there, %s, has %s: it takes %v times that", rate(c.score), placement.Printable(victim.Name),
			rate(victim.score), l.ReplaceRatio)
	default:
		if d := since(r.p.hot, c.Name, r.in.Now); d < l.AdmitAfter {
			c.say(Warming, "score %s, for %v of %v", rate(c.score), short(d), l.AdmitAfter)
			return false
		}
		return true
	}
	delete(r.p.hot, c.Name)
	return false
}

// enterHot places a candidate that is warm, or records why not.
func (r *round) enterHot(c *candidate, room bool) {
	l := r.p.limits
	if ch := r.room(c); ch != nil {
		if !r.spend(1) {
			c.say(Limited, "score %s; it waits: %v moves a minute are allowed", rate(c.score), l.MovesPerMinute)
			return
		}
		c.say(Hot, "score %s for %v, and a slot is free", rate(c.score), l.AdmitAfter)
		r.move(c, Place, ch.Name)
		return
	}
	v := r.coldest(c, false)
	switch {
	case room || v == nil:
		// Hotter candidates took the last free slots. To replace a key instead, this candidate must
		// first be hot enough for that during AdmitAfter.
		c.say(Full, "score %s; hotter keys took the last slots at this moment", rate(c.score))
		delete(r.p.hot, c.Name)
	case c.score < l.ReplaceRatio*v.score:
		c.say(Full, "score %s; hotter keys took the slots of the coldest, and the next, %s, has %s: it takes %v times that", rate(c.score), placement.Printable(v.Name), rate(v.score), l.ReplaceRatio)
	case !r.spend(2):
		c.say(Limited, "score %s; it waits: %v moves a minute are allowed", rate(c.score), l.MovesPerMinute)
	default:
		chain := v.Chain
		v.say(MakeRoom, "the coldest (score %s): makes room for %s (score %s)", rate(v.score), placement.Printable(c.Name), rate(c.score))
		r.move(v, Remove, chain)
		c.say(Hot, "score %s for %v, more than %v times the coldest, %s (%s)", rate(c.score), l.AdmitAfter, l.ReplaceRatio, placement.Printable(v.Name), rate(v.score))
		r.move(c, Place, chain)
	}
}

// short formats a duration without insignificant parts.
func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}
