package stf

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// File is a parsed STF file.
type File struct {
	Name     string
	Commands []Command
}

// Command is one command of an STF file.
type Command struct {
	Line int
	Verb string // in lower case

	Name     string // name of a table, counter, register or meter
	Priority *int
	Match    []KeyArg
	Action   string
	Params   []KeyArg
	ID       string

	Port  uint32
	Frame []byte
	Want  *Pattern // nil for any frame

	Index   string
	Measure string // either "packets" or "bytes"
	Compare string
	Value   string
	Numbers []uint64
	Rates   []Rate
	Members [][]string
}

// KeyArg is an argument of the form NAME:VALUE.
type KeyArg struct{ Name, Value string }

// Rate is one rate of a meter: tokens per microsecond, and a burst in tokens.
type Rate struct {
	PerMicrosecond float64
	Burst          uint64
}

// Pattern is an expected frame as a list of nibbles. A nibble is 0 to 15, or -1 for any.
type Pattern struct {
	Nibbles []int8
	Exact   bool // the frame must not be longer than the pattern
	Text    string
}

// Match reports whether a frame matches the pattern. If it does not match, Match also returns the
// reason.
func (p *Pattern) Match(frame []byte) (bool, string) {
	if len(frame)*2 < len(p.Nibbles) {
		return false, fmt.Sprintf("has %d bytes, fewer than the %d expected", len(frame),
			(len(p.Nibbles)+1)/2)
	}
	if p.Exact && len(frame)*2 != len(p.Nibbles) {
		return false, fmt.Sprintf("has %d bytes instead of %d", len(frame), len(p.Nibbles)/2)
	}
	for i, want := range p.Nibbles {
		got := frame[i/2] >> 4
		if i%2 == 1 {
			got = frame[i/2] & 15
		}
		if want >= 0 && int8(got) != want {
			return false, fmt.Sprintf("differs at byte %d: 0x%02x", i/2, frame[i/2])
		}
	}
	return true, ""
}

// A SyntaxError describes a command that cannot be parsed.
type SyntaxError struct {
	File string
	Line int
	Msg  string
}

func (e *SyntaxError) Error() string { return fmt.Sprintf("%s:%d: %s", e.File, e.Line, e.Msg) }

// Parse parses an STF file. name is the file's name for error messages.
func Parse(name string, text []byte) (*File, error) {
	f := &File{Name: name}
	for i, line := range strings.Split(string(text), "\n") {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		c, err := parseCommand(line)
		if err != nil {
			return nil, &SyntaxError{name, i + 1, err.Error()}
		}
		c.Line = i + 1
		f.Commands = append(f.Commands, *c)
	}
	return f, nil
}

func parseCommand(line string) (*Command, error) {
	verb, rest, _ := strings.Cut(line, " ")
	if v, r, ok := strings.Cut(line, "\t"); ok && len(v) < len(verb) {
		verb, rest = v, r
	}
	c := &Command{Verb: strings.ToLower(verb)}
	switch c.Verb {
	case "packet", "expect":
		return c, c.packet(rest)
	}
	s := scanner{rest: rest}
	var err error
	switch c.Verb {
	case "add":
		err = c.add(&s)
	case "setdefault":
		if c.Name, err = s.name(); err == nil {
			err = c.call(&s)
		}
	case "remove":
		if w, _ := s.name(); w != "all" {
			err = fmt.Errorf("only \"remove all\" is known, not \"remove %s\"", w)
		}
	case "no_packet", "wait":
	case "check_counter", "check_register":
		err = c.check(&s)
	case "register_write":
		c.Name, c.Index, c.Value, err = s.name3()
	case "register_reset":
		c.Name, err = s.name()
	case "counter_write":
		if c.Name, err = s.name(); err == nil {
			c.Numbers, err = s.numbers(3, 3)
		}
	case "counter_read", "register_read", "meter_get_rates", "mirroring_get":
		s.rest = ""
	case "mirroring_add", "mirroring_add_mc", "mc_node_associate":
		c.Numbers, err = s.numbers(2, 2)
	case "mirroring_delete", "mc_mgrp_create", "clock":
		c.Numbers, err = s.numbers(1, 1)
	case "mc_node_create":
		c.Numbers, err = s.numbers(1, 1<<20)
	case "meter_set_rates", "meter_array_set_rates":
		err = c.rates(&s)
	case "value_set":
		if c.Name, err = s.name(); err == nil {
			for _, m := range strings.Fields(s.rest) {
				c.Members = append(c.Members, strings.Split(m, ","))
			}
			s.rest = ""
		}
	default:
		return nil, fmt.Errorf("unknown command %q", verb)
	}
	if err != nil {
		return nil, err
	}
	if s.skip(); s.rest != "" {
		return nil, fmt.Errorf("%q at the end of the line", s.rest)
	}
	return c, nil
}

// packet parses the arguments PORT HEX. Spaces may separate the digits.
func (c *Command) packet(rest string) error {
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return fmt.Errorf("%s without a port", c.Verb)
	}
	port, err := strconv.ParseUint(fields[0], 10, 32)
	if err != nil {
		return fmt.Errorf("%q is not a port number", fields[0])
	}
	c.Port = uint32(port)
	text := strings.Join(fields[1:], "")
	if c.Verb == "packet" {
		p, err := parsePattern(text)
		if err != nil {
			return err
		}
		if len(p.Nibbles)%2 != 0 {
			return fmt.Errorf("an odd number of digits")
		}
		c.Frame = make([]byte, len(p.Nibbles)/2)
		for i, n := range p.Nibbles {
			if n < 0 || p.Exact {
				return fmt.Errorf("a packet to send has no * and no $")
			}
			c.Frame[i/2] |= byte(n) << (4 * (1 - i%2))
		}
		return nil
	}
	if text != "" {
		c.Want, err = parsePattern(text)
	}
	return err
}

func parsePattern(text string) (*Pattern, error) {
	p := &Pattern{Text: text}
	t, exact := strings.CutSuffix(text, "$")
	p.Exact = exact
	for _, d := range t {
		if d == '*' {
			p.Nibbles = append(p.Nibbles, -1)
			continue
		}
		n, err := strconv.ParseUint(string(d), 16, 4)
		if err != nil {
			return nil, fmt.Errorf("%q is not a hexadecimal digit", string(d))
		}
		p.Nibbles = append(p.Nibbles, int8(n))
	}
	return p, nil
}

// add parses the arguments TABLE [PRIORITY] matches ACTION(...) [= ID].
func (c *Command) add(s *scanner) (err error) {
	if c.Name, err = s.name(); err != nil {
		return err
	}
	if s.skip(); s.rest != "" && s.rest[0] >= '0' && s.rest[0] <= '9' {
		w := s.word(" \t")
		p, err := strconv.Atoi(w)
		if err != nil {
			return fmt.Errorf("%q is not a priority", w)
		}
		c.Priority = &p
	}
	for {
		save := s.rest
		name, err := s.name()
		if err != nil {
			return err
		}
		if s.skip(); s.rest == "" || s.rest[0] != ':' {
			s.rest = save
			break
		}
		s.rest = s.rest[1:]
		s.skip()
		c.Match = append(c.Match, KeyArg{name, s.word(" \t")})
	}
	if err := c.call(s); err != nil {
		return err
	}
	if s.skip(); strings.HasPrefix(s.rest, "=") {
		s.rest = s.rest[1:]
		c.ID, err = s.name()
	}
	return err
}

// call parses an action call, ACTION(PARAM:VALUE, ...).
func (c *Command) call(s *scanner) (err error) {
	if c.Action, err = s.name(); err != nil {
		return err
	}
	if s.skip(); !strings.HasPrefix(s.rest, "(") {
		return fmt.Errorf("no ( after action %q", c.Action)
	}
	args, rest, ok := strings.Cut(s.rest[1:], ")")
	if !ok {
		return fmt.Errorf("no ) after the parameters of action %q", c.Action)
	}
	s.rest = rest
	if strings.TrimSpace(args) == "" {
		return nil
	}
	for _, a := range strings.Split(args, ",") {
		n, v, ok := strings.Cut(a, ":")
		if !ok {
			return fmt.Errorf("parameter %q is not NAME:VALUE", strings.TrimSpace(a))
		}
		c.Params = append(c.Params, KeyArg{strings.Trim(strings.TrimSpace(n), `"`),
			strings.TrimSpace(v)})
	}
	return nil
}

// check parses the arguments NAME(INDEX) [MEASURE] COMPARE VALUE.
func (c *Command) check(s *scanner) (err error) {
	if c.Name, err = s.name(); err != nil {
		return err
	}
	s.skip()
	idx, rest, ok := strings.Cut(strings.TrimPrefix(s.rest, "("), ")")
	if !strings.HasPrefix(s.rest, "(") || !ok {
		return fmt.Errorf("no (INDEX) after %q", c.Name)
	}
	c.Index = strings.TrimSpace(idx)
	fields := strings.Fields(rest)
	s.rest = ""
	if c.Verb == "check_counter" {
		// p4c's grammar allows this form, which checks that the counter exists.
		if len(fields) == 0 {
			return nil
		}
		c.Measure, fields = fields[0], fields[1:]
		if c.Measure != "packets" && c.Measure != "bytes" {
			return fmt.Errorf("%q is neither packets nor bytes", c.Measure)
		}
	}
	if len(fields) != 2 {
		return fmt.Errorf("expected a comparison and a number")
	}
	switch fields[0] {
	case "==", "!=", "<", "<=", ">", ">=":
	default:
		return fmt.Errorf("%q is not a comparison", fields[0])
	}
	c.Compare, c.Value = fields[0], fields[1]
	return nil
}

func (c *Command) rates(s *scanner) (err error) {
	if c.Name, err = s.name(); err != nil {
		return err
	}
	fields := strings.Fields(s.rest)
	s.rest = ""
	if c.Verb == "meter_set_rates" {
		if len(fields) == 0 {
			return fmt.Errorf("no index")
		}
		c.Index, fields = fields[0], fields[1:]
	}
	for _, f := range fields {
		r, b, _ := strings.Cut(f, ":")
		rate, err1 := strconv.ParseFloat(r, 64)
		burst, err2 := strconv.ParseUint(b, 10, 64)
		if err1 != nil || err2 != nil || rate < 0 {
			return fmt.Errorf("%q is not RATE:BURST", f)
		}
		c.Rates = append(c.Rates, Rate{rate, burst})
	}
	if len(c.Rates) != 2 {
		return fmt.Errorf("%d rates instead of two", len(c.Rates))
	}
	return nil
}

// scanner splits a line into tokens.
type scanner struct{ rest string }

func (s *scanner) skip() { s.rest = strings.TrimLeft(s.rest, " \t") }

// word reads the text up to one of the given characters.
func (s *scanner) word(until string) string {
	i := strings.IndexAny(s.rest, until)
	if i < 0 {
		i = len(s.rest)
	}
	w := s.rest[:i]
	s.rest = s.rest[i:]
	return w
}

// name reads a qualified name, which may be quoted and may contain [index].
func (s *scanner) name() (string, error) {
	s.skip()
	if strings.HasPrefix(s.rest, `"`) {
		n, rest, ok := strings.Cut(s.rest[1:], `"`)
		if !ok {
			return "", fmt.Errorf("a quote that does not end")
		}
		s.rest = rest
		return n, nil
	}
	if n := s.word(" \t:()=,"); n != "" {
		return n, nil
	}
	return "", fmt.Errorf("expected a name, found %q", s.rest)
}

func (s *scanner) name3() (a, b, c string, err error) {
	if a, err = s.name(); err != nil {
		return
	}
	f := strings.Fields(s.rest)
	if len(f) != 2 {
		return "", "", "", fmt.Errorf("expected an index and a value after %q", a)
	}
	s.rest = ""
	return a, f[0], f[1], nil
}

func (s *scanner) numbers(least, most int) ([]uint64, error) {
	var out []uint64
	for _, f := range strings.Fields(s.rest) {
		v, err := strconv.ParseUint(f, 0, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a number", f)
		}
		out = append(out, v)
	}
	s.rest = ""
	if len(out) < least || len(out) > most {
		return nil, fmt.Errorf("%d numbers, expected %d", len(out), least)
	}
	return out, nil
}

// number parses a value. mask has the bits that matter. The bits of a digit * do not matter.
func number(text string) (value, mask *big.Int, digits int, err error) {
	base, bits, t := 10, 0, text
	switch {
	case strings.HasPrefix(text, "0x"), strings.HasPrefix(text, "0X"):
		base, bits, t = 16, 4, text[2:]
	case strings.HasPrefix(text, "0b"), strings.HasPrefix(text, "0B"):
		base, bits, t = 2, 1, text[2:]
	case strings.HasPrefix(text, "0o"):
		base, bits, t = 8, 3, text[2:]
	}
	wild := strings.Count(t, "*")
	if wild > 0 && bits == 0 {
		return nil, nil, 0, fmt.Errorf("a * in the decimal number %q", text)
	}
	value, ok := new(big.Int).SetString(strings.ReplaceAll(t, "*", "0"), base)
	if !ok || value.Sign() < 0 {
		return nil, nil, 0, fmt.Errorf("%q is not a number", text)
	}
	if wild == 0 {
		return value, nil, len(t) * bits, nil
	}
	mask = new(big.Int)
	for _, d := range t {
		mask.Lsh(mask, uint(bits))
		if d != '*' {
			mask.Or(mask, big.NewInt(1<<bits-1))
		}
	}
	return value, mask, (len(t) - wild) * bits, nil
}
