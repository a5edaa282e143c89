package translate

import (
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"regexp"
	"strings"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netcraq/netcraq/switch/target"
)

// Restrictions are a program's constraints on the entries of its tables, in the language of
// p4-constraints (github.com/p4lang/p4-constraints, docs/language-specification.md):
//
//	@entry_restriction("session != 0; ipv4_dst::prefix_length == 32 || ::priority > 7")
//	@action_restriction("slot < 65536 && realm != 0")
//
// As in p4-constraints, a restriction that is invalid or compares incomparable operands is an error
// when the pipeline is loaded. A rule that is not enforced would be worse than a refused program.

// restriction is one parsed restriction. Every entry that the server accepts satisfies it.
type restriction struct {
	text string
	met  func(*Subject) bool
}

// Subject is what a restriction is applied to: the match and priority of an entry, or the arguments
// of an action.
type Subject struct {
	Match    []target.FieldMatch
	Priority int
	params   [][]byte
}

// CheckRestrictions returns an error if a Subject violates one of the restrictions.
func CheckRestrictions(where string, rs []restriction, s *Subject) error {
	for _, r := range rs {
		if !r.met(s) {
			return Invalidf("%s: its restriction is not met: %s", where, strings.Join(strings.Fields(r.text), " "))
		}
	}
	return nil
}

// ReadRestrictions parses the restrictions of all tables and actions.
func (s *Schema) ReadRestrictions() error {
	var errs []error
	for _, t := range s.TableOrder {
		names := map[string]operand{}
		for i, k := range t.Keys {
			names[k.name] = operand{kind: isMatch, width: k.width, parts: partsOf(i, &k)}
		}
		rs, err := restrictionsOf("@entry_restriction", t.Info.Preamble, names)
		t.Restrictions, errs = rs, append(errs, err)
	}
	for _, info := range s.info.Actions {
		a, names := s.actions[info.Preamble.Id], map[string]operand{}
		for i, q := range a.params {
			names[q.name] = operand{kind: isNumber, width: q.width,
				number: func(s *Subject) *big.Int { return new(big.Int).SetBytes(s.params[i]) }}
		}
		rs, err := restrictionsOf("@action_restriction", info.Preamble, names)
		a.restrictions, errs = rs, append(errs, err)
	}
	return errors.Join(errs...)
}

var quotedString = regexp.MustCompile(`^\s*"((?:[^"\\]|\\.)*)"`)

var unescape = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\\`, `\`)

// restrictionsOf returns the restrictions of a table or an action. names has the names that
// restrictions may use.
func restrictionsOf(kind string, p *p4cfg.Preamble, names map[string]operand) (out []restriction, err error) {
	for _, a := range p.Annotations {
		body, ok := strings.CutPrefix(a, kind+"(")
		if !ok {
			continue
		}
		text, rest := "", strings.TrimSuffix(body, ")")
		for m := quotedString.FindStringSubmatch(rest); m != nil; m = quotedString.FindStringSubmatch(rest) {
			text, rest = text+unescape.Replace(m[1]), rest[len(m[0]):]
		}
		if strings.TrimSpace(rest) != "" {
			return nil, fmt.Errorf("%s of %s has to be a string: %s", kind, p.Name, a)
		}
		met, err := parseRestriction(text, names, kind == "@entry_restriction")
		if err != nil {
			return nil, fmt.Errorf("%s of %s: %w: %s", kind, p.Name, err, text)
		}
		out = append(out, restriction{text: text, met: met})
	}
	return out, nil
}

// operand is a partly parsed expression with its type.
type operand struct {
	kind  operandKind
	width int // width of a number in bits; 0 stands for an integer of any size

	number func(*Subject) *big.Int
	truth  func(*Subject) bool
	parts  map[string]operand // parts of a key, by the name after "::" in a restriction
}

type operandKind string

const (
	isBool   operandKind = "a truth value"
	isNumber operandKind = "a number"
	isMatch  operandKind = "a match"
)

// partsOf returns the parts of a key's match, by name.
func partsOf(i int, k *key) map[string]operand {
	bits := func(part func(*target.FieldMatch) []byte) operand {
		return operand{kind: isNumber, width: k.width, number: func(s *Subject) *big.Int {
			return new(big.Int).SetBytes(part(&s.Match[i]))
		}}
	}
	value := bits(func(m *target.FieldMatch) []byte { return m.Value })
	mask := bits(func(m *target.FieldMatch) []byte { return m.Mask })
	switch k.kind {
	case p4cfg.MatchField_TERNARY, p4cfg.MatchField_OPTIONAL:
		return map[string]operand{"value": value, "mask": mask}
	case p4cfg.MatchField_RANGE:
		return map[string]operand{"low": value, "high": mask}
	case p4cfg.MatchField_LPM:
		length := operand{kind: isNumber, number: func(s *Subject) *big.Int {
			return big.NewInt(int64(s.Match[i].PrefixLen))
		}}
		return map[string]operand{"value": value, "prefix_length": length}
	default:
		return map[string]operand{"value": value}
	}
}

// equals returns the condition that a key matches exactly one value, n.
func (o operand) equals(n operand) func(*Subject) bool {
	fits := func(part string, want func(*Subject) *big.Int) func(*Subject) bool {
		return func(s *Subject) bool { return o.parts[part].number(s).Cmp(want(s)) == 0 }
	}
	whole := func(n *big.Int) func(*Subject) *big.Int { return func(*Subject) *big.Int { return n } }
	value, also := fits("value", n.number), func(*Subject) bool { return true }
	switch {
	case o.parts["mask"].number != nil:
		also = fits("mask", whole(onesOf(o.width)))
	case o.parts["prefix_length"].number != nil:
		also = fits("prefix_length", whole(big.NewInt(int64(o.width))))
	case o.parts["low"].number != nil:
		value, also = fits("low", n.number), fits("high", n.number)
	}
	return func(s *Subject) bool { return value(s) && also(s) }
}

func onesOf(width int) *big.Int {
	one := big.NewInt(1)
	return new(big.Int).Sub(new(big.Int).Lsh(one, uint(width)), one)
}

// restrictionParser parses a restriction from left to right.
type restrictionParser struct {
	rest  string
	token string // the next token, or "" at the end
	names map[string]operand
	entry bool
	depth int
}

// Limits on restrictions. Programs come from a controller, so parsing must stay cheap whatever a
// restriction contains.
const (
	longestRestriction = 1 << 16
	deepestRestriction = 100
)

var restrictionToken = regexp.MustCompile(`^(?:[_a-zA-Z]\w*(?:\.[_a-zA-Z]\w*)*|[0-9]\w*|'[^']*'|` +
	`&&|\|\||->|==|!=|<=|>=|::|[!<>();-])`)

var restrictionSpace = regexp.MustCompile(`^(?:\s|//[^\n]*|/\*(?s:.*?)\*/)+`)

func parseRestriction(text string, names map[string]operand, entry bool) (met func(*Subject) bool, err error) {
	p := &restrictionParser{rest: text, names: names, entry: entry}
	defer func() { // the parser reports errors by panicking with a restrictionError
		if r := recover(); r != nil {
			e, ok := r.(restrictionError)
			if !ok {
				panic(r)
			}
			met, err = nil, e.error
		}
	}()
	if len(text) > longestRestriction {
		p.fail("it is longer than %d bytes", longestRestriction)
	}
	p.next()
	met = p.truthOf(p.sequence())
	if p.token != "" {
		p.fail("%q is not expected", p.token)
	}
	return met, nil
}

type restrictionError struct{ error }

func (p *restrictionParser) fail(format string, args ...any) {
	panic(restrictionError{fmt.Errorf(format, args...)})
}

func (p *restrictionParser) next() {
	p.rest = p.rest[len(restrictionSpace.FindString(p.rest)):]
	p.token = restrictionToken.FindString(p.rest)
	if p.token == "" && p.rest != "" {
		p.fail("%q is not of the language", p.rest[:1])
	}
	p.rest = p.rest[len(p.token):]
}

// accept skips the next token if it is equal to token, and reports whether it did.
func (p *restrictionParser) accept(token string) bool {
	if p.token != token {
		return false
	}
	p.next()
	return true
}

func (p *restrictionParser) expect(token string) {
	if !p.accept(token) {
		p.fail("%q is missing", token)
	}
}

func (p *restrictionParser) truthOf(o operand) func(*Subject) bool {
	if o.kind != isBool {
		p.fail("%s stands where a condition should", o.kind)
	}
	return o.truth
}

func (p *restrictionParser) numberOf(o operand) operand {
	if o.kind == isMatch && len(o.parts) == 1 {
		return o.parts["value"] // an exact key stands for its value
	}
	if o.kind != isNumber {
		p.fail("%s stands where a number should", o.kind)
	}
	return o
}

func both(a, b func(*Subject) bool) func(*Subject) bool {
	return func(s *Subject) bool { return a(s) && b(s) }
}

func either(a, b func(*Subject) bool) func(*Subject) bool {
	return func(s *Subject) bool { return a(s) || b(s) }
}

func notSo(a func(*Subject) bool) func(*Subject) bool { return func(s *Subject) bool { return !a(s) } }

func truth(f func(*Subject) bool) operand { return operand{kind: isBool, truth: f} }

// sequence parses conditions that are separated by ";". All of them must be true. The last
// condition may end with ";".
func (p *restrictionParser) sequence() operand {
	left := p.implication()
	for p.accept(";") {
		all := p.truthOf(left)
		if p.token != "" && p.token != ")" {
			all = both(all, p.truthOf(p.implication()))
		}
		left = truth(all)
	}
	return left
}

func (p *restrictionParser) implication() operand {
	left := p.disjunction()
	if p.accept("->") {
		return truth(either(notSo(p.truthOf(left)), p.truthOf(p.disjunction())))
	}
	return left
}

func (p *restrictionParser) disjunction() operand {
	left := p.conjunction()
	for p.accept("||") {
		left = truth(either(p.truthOf(left), p.truthOf(p.conjunction())))
	}
	return left
}

func (p *restrictionParser) conjunction() operand {
	left := p.comparison()
	for p.accept("&&") {
		left = truth(both(p.truthOf(left), p.truthOf(p.comparison())))
	}
	return left
}

// orders maps each comparison operator to its result, which depends on the order of the two sides.
var orders = map[string]func(int) bool{
	"==": func(c int) bool { return c == 0 }, "!=": func(c int) bool { return c != 0 },
	"<": func(c int) bool { return c < 0 }, "<=": func(c int) bool { return c <= 0 },
	">": func(c int) bool { return c > 0 }, ">=": func(c int) bool { return c >= 0 },
}

func (p *restrictionParser) comparison() operand {
	left := p.unary()
	op := p.token
	order := orders[op]
	if order == nil {
		return left
	}
	p.next()
	right := p.unary()
	equality := op == "==" || op == "!="
	switch {
	case equality && left.kind == isBool && right.kind == isBool:
		return truth(func(s *Subject) bool { return (left.truth(s) == right.truth(s)) == (op == "==") })
	case equality && left.kind == isMatch && len(left.parts) > 1:
		return p.equality(left, right, op)
	case equality && right.kind == isMatch && len(right.parts) > 1:
		return p.equality(right, left, op)
	}
	a, b := p.numberOf(left), p.numberOf(right)
	if a.width != 0 && b.width != 0 && a.width != b.width {
		p.fail("%d bits are compared with %d", a.width, b.width)
	}
	a, b = a.as(b.width), b.as(a.width)
	return truth(func(s *Subject) bool { return order(a.number(s).Cmp(b.number(s))) })
}

// equality compares a whole match with a value. It is true if the match accepts only that value.
func (p *restrictionParser) equality(match, with operand, op string) operand {
	same := match.equals(p.numberOf(with).as(match.width))
	if op == "!=" {
		same = notSo(same)
	}
	return truth(same)
}

// as converts an integer to a number of width bits. It keeps the lowest bits, so -1 becomes all
// ones.
func (o operand) as(width int) operand {
	if o.width != 0 || width == 0 {
		return o
	}
	whole, ones := o.number, onesOf(width)
	return operand{kind: isNumber, width: width,
		number: func(s *Subject) *big.Int { return new(big.Int).And(whole(s), ones) }}
}

func (p *restrictionParser) unary() operand {
	if p.depth++; p.depth > deepestRestriction {
		p.fail("it is nested deeper than %d", deepestRestriction)
	}
	defer func() { p.depth-- }()
	switch {
	case p.accept("!"):
		return truth(notSo(p.truthOf(p.unary())))
	case p.accept("-"):
		o := p.numberOf(p.unary())
		if o.width != 0 {
			p.fail("a field of %d bits has no negative", o.width)
		}
		return operand{kind: isNumber, number: func(s *Subject) *big.Int { return new(big.Int).Neg(o.number(s)) }}
	case p.accept("("):
		inner := p.sequence()
		p.expect(")")
		return inner
	case p.accept("::"):
		if !p.entry || p.token != "priority" {
			p.fail("there is no ::%s", p.token)
		}
		p.next()
		return operand{kind: isNumber, number: func(s *Subject) *big.Int { return big.NewInt(int64(s.Priority)) }}
	}
	return p.atom()
}

func (p *restrictionParser) atom() operand {
	token := p.token
	if token == "" {
		p.fail("it ends too early")
	}
	p.next()
	switch {
	case token == "true" || token == "false":
		return truth(func(*Subject) bool { return token == "true" })
	case token[0] >= '0' && token[0] <= '9':
		digits, base := strings.TrimPrefix(strings.ToLower(token), "0d"), 0
		if strings.Trim(digits, "0123456789") == "" {
			base = 10 // A number is decimal even with a leading 0, as in 010.
		}
		n, ok := new(big.Int).SetString(digits, base)
		if !ok || strings.Contains(digits, "_") {
			p.fail("%q is no number", token)
		}
		return operand{kind: isNumber, number: func(*Subject) *big.Int { return n }}
	case p.token == "(" && (token == "ipv4" || token == "ipv6" || token == "mac"):
		return p.address(token)
	}
	o, ok := p.names[token]
	if !ok {
		p.fail("there is no %s", token)
	}
	if p.accept("::") {
		part, ok := o.parts[p.token]
		if !ok {
			p.fail("%s has no ::%s", token, p.token)
		}
		p.next()
		return part
	}
	return o
}

// address parses ipv4('10.0.0.1'), ipv6('...') or mac('...').
func (p *restrictionParser) address(kind string) operand {
	p.expect("(")
	text := strings.Trim(p.token, "'")
	n, err := addressBytes(kind, text)
	if err != nil || text == p.token {
		p.fail("%s(%s) is no address", kind, p.token)
	}
	p.next()
	p.expect(")")
	return operand{kind: isNumber, number: func(*Subject) *big.Int { return new(big.Int).SetBytes(n) }}
}

func addressBytes(kind, text string) ([]byte, error) {
	if kind == "mac" {
		return net.ParseMAC(text)
	}
	a, err := netip.ParseAddr(text)
	if err == nil && a.Is4() != (kind == "ipv4") {
		err = errors.New("of the other version")
	}
	return a.AsSlice(), err
}
