package stf

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/target"
)

// Packet is a frame that leaves through a port.
type Packet struct {
	Port  uint32
	Frame []byte
}

// Switch is what an STF file tests: a pipeline, and a function that sends a packet through it.
type Switch struct {
	Pipeline target.Pipeline
	// Process sends a frame into a port, at a time of the program's clock. It returns the outgoing
	// frames, and must not reuse their memory.
	Process func(now time.Duration, port uint32, frame []byte) []Packet
}

// Run runs an STF file. It returns the differences from the file's expectations, one message each,
// in the file's order. If a command cannot be executed, it returns an error.
//
// As p4c's own runner does, it compares the n-th expectation for a port with the n-th frame that
// left through this port, at any time. It ignores frames that leave through a port that the file
// does not name.
func Run(f *File, sw Switch) (differences []string, err error) {
	r := &runner{file: f, sw: sw, prog: sw.Pipeline.Program(), got: map[uint32][]received{},
		ids: map[string]entryID{}}
	for i := range f.Commands {
		c := &f.Commands[i]
		if err := r.do(c); err != nil {
			return nil, fmt.Errorf("%s:%d: %s: %w", f.Name, c.Line, c.Verb, err)
		}
	}
	r.compare()
	return r.diffs, nil
}

type runner struct {
	file *File
	sw   Switch
	prog *bmv2json.Program
	now  time.Duration
	got  map[uint32][]received
	last []Packet // the outgoing frames of the last packet
	ids  map[string]entryID
	// the multicast nodes by number; a node has one replica for each of its ports
	node  [][]target.Replica
	diffs []string
}

type received struct {
	frame []byte
	line  int // line of the packet command that caused the frame
}

type entryID struct {
	table string
	entry *target.TableEntry
}

func (r *runner) differ(c *Command, format string, args ...any) {
	r.diffs = append(r.diffs, fmt.Sprintf("%s:%d: ", r.file.Name, c.Line)+fmt.Sprintf(format,
		args...))
}

func (r *runner) do(c *Command) error {
	p := r.sw.Pipeline
	switch c.Verb {
	case "add":
		return r.add(c)
	case "setdefault":
		t, err := r.table(c.Name)
		if err != nil {
			return err
		}
		a, err := action(t, c)
		if err != nil {
			return err
		}
		return p.SetDefault(t.Name, &target.TableEntry{Action: a})
	case "remove":
		return r.removeAll()
	case "packet":
		r.now += time.Microsecond
		r.last = r.sw.Process(r.now, c.Port, c.Frame)
		for _, o := range r.last {
			r.got[o.Port] = append(r.got[o.Port], received{o.Frame, c.Line})
		}
	case "no_packet":
		if len(r.last) > 0 {
			r.differ(c, "a frame left by port %d: %x", r.last[0].Port, r.last[0].Frame)
		}
	case "clock":
		r.now += time.Duration(c.Numbers[0]) * time.Microsecond
	case "check_counter":
		return r.checkCounter(c)
	case "counter_write":
		name, err := r.array(c.Name, "counter")
		if err != nil {
			return err
		}
		return p.WriteCounter(name, int(c.Numbers[0]),
			target.CounterData{Bytes: c.Numbers[1], Packets: c.Numbers[2]})
	case "check_register", "register_write", "register_reset":
		return r.register(c)
	case "meter_set_rates", "meter_array_set_rates":
		return r.meter(c)
	case "value_set":
		return r.valueSet(c)
	case "mirroring_add":
		return p.SetCloneSession(uint32(c.Numbers[0]),
			&target.CloneSession{Replicas: []target.Replica{{Port: uint32(c.Numbers[1])}}})
	case "mirroring_add_mc":
		return p.SetCloneSession(uint32(c.Numbers[0]),
			&target.CloneSession{Replicas: p.MulticastGroups()[uint32(c.Numbers[1])]})
	case "mirroring_delete":
		return p.SetCloneSession(uint32(c.Numbers[0]), nil)
	case "mc_mgrp_create":
		return p.SetMulticastGroup(uint32(c.Numbers[0]), []target.Replica{})
	case "mc_node_create":
		var node []target.Replica
		for _, port := range c.Numbers[1:] {
			node = append(node, target.Replica{Port: uint32(port), Instance: uint16(c.Numbers[0])})
		}
		r.node = append(r.node, node)
	case "mc_node_associate":
		id, n := uint32(c.Numbers[0]), c.Numbers[1]
		members, ok := p.MulticastGroups()[id]
		if !ok || n >= uint64(len(r.node)) {
			return fmt.Errorf("there is no group %d or no node %d", id, n)
		}
		return p.SetMulticastGroup(id, append(members, r.node[n]...))
	}
	// Expectations are compared at the end. The commands wait and those that only print do nothing.
	return nil
}

// compare compares the expected frames with the outgoing ones.
func (r *runner) compare() {
	named := map[uint32]bool{}
	wants := map[uint32][]*Command{}
	for i := range r.file.Commands {
		c := &r.file.Commands[i]
		switch c.Verb {
		case "packet":
			named[c.Port] = true
		case "expect":
			named[c.Port] = true
			wants[c.Port] = append(wants[c.Port], c)
		}
	}
	for i := range r.file.Commands {
		c := &r.file.Commands[i]
		if c.Verb != "expect" {
			continue
		}
		n := slices.Index(wants[c.Port], c)
		got := r.got[c.Port]
		if n >= len(got) {
			r.differ(c, "expected frame %d on port %d, only %d left", n+1, c.Port, len(got))
			continue
		}
		if c.Want == nil {
			continue
		}
		if ok, why := c.Want.Match(got[n].frame); !ok {
			r.differ(c, "frame %d on port %d (after line %d) %s\n    expected %s\n    got      %x",
				n+1, c.Port, got[n].line, why, strings.ToLower(c.Want.Text), got[n].frame)
		}
	}
	var ports []uint32
	for p := range r.got {
		if named[p] && len(r.got[p]) > len(wants[p]) &&
			!slices.ContainsFunc(wants[p], func(c *Command) bool { return c.Want == nil }) {
			ports = append(ports, p)
		}
	}
	slices.Sort(ports)
	for _, p := range ports {
		for _, x := range r.got[p][len(wants[p]):] {
			r.differ(&Command{Line: x.line},
				"a frame that was not expected left by port %d\n    got      %x", p, x.frame)
		}
	}
}

func (r *runner) removeAll() error {
	for _, t := range r.prog.Tables() {
		entries, err := r.sw.Pipeline.Entries(t.Name)
		if err != nil {
			return err
		}
		for i := range entries {
			if entries[i].IsConst {
				continue
			}
			if err := r.sw.Pipeline.DeleteEntry(t.Name, &entries[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// suffix finds the object with the name wanted. If there is none, it finds the object whose last
// name components are wanted, and otherwise the object whose name ends with wanted. The result must
// be unique.
func suffix[T any](what, wanted string, all []T, name func(T) string) (T, error) {
	for _, is := range []func(string) bool{
		func(s string) bool { return s == wanted },
		func(s string) bool { return strings.HasSuffix(s, "."+wanted) },
		func(s string) bool { return strings.HasSuffix(s, wanted) },
	} {
		var found []T
		for _, x := range all {
			if is(name(x)) {
				found = append(found, x)
			}
		}
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return found[0], fmt.Errorf("%q may be %s %q or %q", wanted, what, name(found[0]),
				name(found[1]))
		}
	}
	var none T
	return none, fmt.Errorf("no %s is called %q", what, wanted)
}

func (r *runner) table(name string) (*bmv2json.Table, error) {
	return suffix("table", name, r.prog.Tables(), func(t *bmv2json.Table) string { return t.Name })
}

func action(t *bmv2json.Table, c *Command) (*target.ActionCall, error) {
	a, err := suffix("action of table "+t.Name, c.Action, t.Actions,
		func(a *bmv2json.Action) string { return a.Name })
	if err != nil {
		return nil, err
	}
	out := &target.ActionCall{Action: a.Name, Params: make([][]byte, len(a.Params))}
	for _, p := range c.Params {
		i := slices.IndexFunc(a.Params, func(x bmv2json.Param) bool { return x.Name == p.Name })
		if i < 0 {
			return nil, fmt.Errorf("action %q has no parameter %q", a.Name, p.Name)
		}
		if out.Params[i], err = bytesOf(p.Value, a.Params[i].Width); err != nil {
			return nil, fmt.Errorf("parameter %q: %w", p.Name, err)
		}
	}
	for i, v := range out.Params {
		if v == nil {
			return nil, fmt.Errorf("action %q without its parameter %q", a.Name, a.Params[i].Name)
		}
	}
	return out, nil
}

// bytesOf parses a value of width bits.
func bytesOf(text string, width int) ([]byte, error) {
	v, mask, _, err := number(text)
	if err != nil {
		return nil, err
	}
	if mask != nil {
		return nil, fmt.Errorf("%q has digits that do not matter", text)
	}
	return fill(v, width)
}

func fill(v *big.Int, width int) ([]byte, error) {
	if v.BitLen() > width {
		return nil, fmt.Errorf("0x%x does not fit %d bits", v, width)
	}
	return v.FillBytes(make([]byte, (width+7)/8)), nil
}

func (r *runner) add(c *Command) error {
	t, err := r.table(c.Name)
	if err != nil {
		return err
	}
	e := &target.TableEntry{Match: make([]target.FieldMatch, len(t.Keys))}
	if c.Priority != nil {
		e.Priority = *c.Priority
	}
	for i, k := range t.Keys {
		e.Match[i] = wildcard(k)
	}
	for _, m := range c.Match {
		i, err := keyIndex(t, m.Name)
		if err != nil {
			return err
		}
		if e.Match[i], err = match(t.Keys[i], m.Value); err != nil {
			return fmt.Errorf("key %q: %w", m.Name, err)
		}
	}
	if e.Action, err = action(t, c); err != nil {
		return err
	}
	if c.ID != "" {
		r.ids[c.ID] = entryID{t.Name, e}
	}
	return r.sw.Pipeline.InsertEntry(t.Name, e)
}

// keyIndex finds a table's key by a name. The name can be the key's name, its last components, or
// p4c's form of the name, which has $ in place of brackets and $valid$ in place of valid.
func keyIndex(t *bmv2json.Table, name string) (int, error) {
	var alternatives []string
	for _, n := range []string{name, unbracket(name)} {
		alternatives = append(alternatives, n, n+"$", n+".$valid$")
		if s, ok := strings.CutSuffix(n, "valid"); ok {
			alternatives = append(alternatives, s+"$valid$")
		}
	}
	for _, a := range alternatives {
		for i, k := range t.Keys {
			if k.Name == a || k.Field.String() == a {
				return i, nil
			}
		}
	}
	for _, a := range alternatives {
		for i, k := range t.Keys {
			if strings.HasSuffix(k.Name, "."+a) || strings.HasSuffix(k.Field.String(), "."+a) {
				return i, nil
			}
		}
	}
	return 0, fmt.Errorf("table %q has no key %q", t.Name, name)
}

// unbracket converts a name like "extra$0.h" to "extra[0].h".
func unbracket(name string) string {
	before, after, ok := strings.Cut(name, "$")
	if !ok {
		return name
	}
	i := 0
	for i < len(after) && after[i] >= '0' && after[i] <= '9' {
		i++
	}
	if i == 0 {
		return name
	}
	return before + "[" + after[:i] + "]" + after[i:]
}

// wildcard returns the match for a key that the command does not mention.
func wildcard(k bmv2json.Key) target.FieldMatch {
	zero := func() []byte { return make([]byte, (k.Width+7)/8) }
	switch k.Kind {
	case bmv2json.MatchTernary, bmv2json.MatchOptional:
		return target.FieldMatch{Value: zero(), Mask: zero()}
	case bmv2json.MatchRange:
		return target.FieldMatch{Value: zero(), Mask: ones(k.Width)}
	}
	return target.FieldMatch{Value: zero()}
}

func ones(width int) []byte {
	v := new(big.Int).Lsh(big.NewInt(1), uint(width))
	return v.Sub(v, big.NewInt(1)).FillBytes(make([]byte, (width+7)/8))
}

func match(k bmv2json.Key, text string) (m target.FieldMatch, err error) {
	switch k.Kind {
	case bmv2json.MatchRange:
		lo, hi, ok := strings.Cut(text, "->")
		if !ok {
			hi = lo
		}
		if m.Value, err = bytesOf(lo, k.Width); err == nil {
			m.Mask, err = bytesOf(hi, k.Width)
		}
		return m, err
	case bmv2json.MatchTernary, bmv2json.MatchOptional:
		if v, mask, ok := strings.Cut(text, "&&&"); ok {
			if m.Value, err = bytesOf(v, k.Width); err == nil {
				m.Mask, err = bytesOf(mask, k.Width)
			}
			return m, err
		}
	case bmv2json.MatchLPM:
		if v, n, ok := strings.Cut(text, "/"); ok {
			if m.Value, err = bytesOf(v, k.Width); err == nil {
				m.PrefixLen, err = strconv.Atoi(n)
			}
			return m, err
		}
	}
	v, mask, digits, err := number(text)
	if err != nil {
		return m, err
	}
	if m.Value, err = fill(v, k.Width); err != nil {
		return m, err
	}
	switch {
	case k.Kind == bmv2json.MatchTernary || k.Kind == bmv2json.MatchOptional:
		m.Mask = ones(k.Width)
		if mask != nil {
			// Digits that are missing in front of the value are 0. These digits matter.
			all := new(big.Int).SetBytes(ones(k.Width))
			written := new(big.Int).Lsh(big.NewInt(1), uint(digits+wildBits(text)))
			written.Sub(written, big.NewInt(1))
			m.Mask = all.AndNot(all, written.AndNot(written, mask)).FillBytes(make([]byte,
				(k.Width+7)/8))
		}
	case k.Kind == bmv2json.MatchLPM:
		m.PrefixLen = k.Width
		if mask != nil {
			m.PrefixLen = min(digits, k.Width)
		}
	case mask != nil:
		return m, fmt.Errorf("%q has digits that do not matter, but the key is %s", text, k.Kind)
	}
	return m, nil
}

// wildBits returns the number of bits that the *s in a number represent.
func wildBits(text string) int {
	bits := 4
	switch {
	case strings.HasPrefix(text, "0b"), strings.HasPrefix(text, "0B"):
		bits = 1
	case strings.HasPrefix(text, "0o"):
		bits = 3
	}
	return strings.Count(text, "*") * bits
}

func (r *runner) array(name, kind string) (string, error) {
	var names []string
	switch kind {
	case "counter":
		for _, c := range r.prog.Counters {
			names = append(names, c.Name)
		}
	case "register":
		for _, c := range r.prog.Registers {
			names = append(names, c.Name)
		}
	case "meter":
		for _, c := range r.prog.Meters {
			names = append(names, c.Name)
		}
	}
	return suffix(kind, name, names, func(s string) string { return s })
}

func compare(got *big.Int, how string, want *big.Int) bool {
	c := got.Cmp(want)
	switch how {
	case "==":
		return c == 0
	case "!=":
		return c != 0
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

func (r *runner) checkCounter(c *Command) error {
	name, err := r.array(c.Name, "counter")
	if err != nil {
		return err
	}
	var d target.CounterData
	if id, ok := r.ids[strings.TrimPrefix(c.Index, "$")]; ok {
		d, err = r.sw.Pipeline.DirectCounter(id.table, id.entry)
	} else {
		var i int
		if i, err = strconv.Atoi(c.Index); err != nil {
			return fmt.Errorf("%q is neither an index nor the ID of an entry", c.Index)
		}
		d, err = r.sw.Pipeline.ReadCounter(name, i)
	}
	if err != nil || c.Measure == "" {
		return err
	}
	want, _, _, err := number(c.Value)
	if err != nil {
		return err
	}
	got := d.Packets
	if c.Measure == "bytes" {
		got = d.Bytes
	}
	if !compare(new(big.Int).SetUint64(got), c.Compare, want) {
		r.differ(c, "counter %s(%s) has %d %s, not %s %s", name, c.Index, got, c.Measure, c.Compare,
			c.Value)
	}
	return nil
}

func (r *runner) register(c *Command) error {
	name, err := r.array(c.Name, "register")
	if err != nil {
		return err
	}
	width := r.prog.Register(name).Width
	if c.Verb == "register_reset" {
		return r.sw.Pipeline.FillRegister(name, make([]byte, (width+7)/8))
	}
	i, err := strconv.Atoi(c.Index)
	if err != nil {
		return fmt.Errorf("%q is not an index", c.Index)
	}
	want, err := bytesOf(c.Value, width)
	if err != nil {
		return err
	}
	if c.Verb == "register_write" {
		return r.sw.Pipeline.WriteRegister(name, i, want)
	}
	got, err := r.sw.Pipeline.ReadRegister(name, i)
	if err != nil {
		return err
	}
	if !compare(new(big.Int).SetBytes(got), c.Compare, new(big.Int).SetBytes(want)) {
		r.differ(c, "register %s(%d) is 0x%x, not %s %s", name, i, got, c.Compare, c.Value)
	}
	return nil
}

func (r *runner) meter(c *Command) error {
	name, err := r.array(c.Name, "meter")
	if err != nil {
		return err
	}
	rate := func(x Rate) target.MeterRate {
		return target.MeterRate{PerSecond: uint64(math.Round(x.PerMicrosecond * 1e6)),
			Burst: x.Burst}
	}
	cfg := &target.MeterConfig{Committed: rate(c.Rates[0]), Peak: rate(c.Rates[1])}
	if c.Verb == "meter_set_rates" {
		i, err := strconv.Atoi(c.Index)
		if err != nil {
			return fmt.Errorf("%q is not an index", c.Index)
		}
		return r.sw.Pipeline.WriteMeter(name, i, cfg)
	}
	for i := range r.prog.Meter(name).Size {
		if err := r.sw.Pipeline.WriteMeter(name, i, cfg); err != nil {
			return err
		}
	}
	return nil
}

func (r *runner) valueSet(c *Command) error {
	s, err := suffix("value set", c.Name, r.prog.ValueSets,
		func(s *bmv2json.ValueSet) string { return s.Name })
	if err != nil {
		return err
	}
	members := [][]target.FieldMatch{}
	for _, m := range c.Members {
		if len(m) != len(s.Widths) {
			return fmt.Errorf("value set %q has %d fields, the member %d", s.Name, len(s.Widths),
				len(m))
		}
		var fields []target.FieldMatch
		for i, f := range m {
			v, err := bytesOf(f, s.Widths[i])
			if err != nil {
				return err
			}
			fields = append(fields, target.FieldMatch{Value: v})
		}
		members = append(members, fields)
	}
	return r.sw.Pipeline.SetValueSet(s.Name, members)
}
