package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/client/etcd/placement"
)

// Choice is a rule's choice for its keys.
type Choice string

// These are the choices.
const (
	Pin     Choice = "pin"     // the key is placed whatever its heat, if possible
	Exclude Choice = "exclude" // the key is never placed
	Include Choice = "include" // the key is placed by its heat, as an exception from a wider exclusion
)

// Subject is the subject of a rule: one key, or all keys that begin with a prefix.
type Subject struct {
	Name   string
	Prefix bool
}

func (s Subject) String() string {
	if s.Prefix {
		return placement.Printable(s.Name) + "*"
	}
	return placement.Printable(s.Name)
}

// Rules are the operator's rules. The narrowest rule about a key applies. That is the rule about
// the key itself, or otherwise the rule about the longest prefix.
type Rules struct {
	own    string // the gateways' own prefix, which no rule can change
	normal map[Subject]Choice
	chosen map[Subject]Choice
}

// HealthKey is the key that kube-apiserver reads to check that etcd answers. The network must not
// serve it, because its answer would not show whether etcd answers.
const HealthKey = "/registry/health"

// NewRules returns the default rules: the health key and placement.Credentials are excluded. own
// is the prefix of the gateways' own state.
func NewRules(own string) *Rules {
	r := &Rules{own: own, normal: map[Subject]Choice{{Name: HealthKey}: Exclude}, chosen: map[Subject]Choice{}}
	for _, prefix := range placement.Credentials {
		r.normal[Subject{prefix, true}] = Exclude
	}
	return r
}

// Set stores a choice. For the gateways' own keys, it refuses everything but an exclusion.
func (r *Rules) Set(s Subject, c Choice) error {
	switch {
	case s.Name == "":
		return fmt.Errorf("a rule about an empty key or prefix")
	case c != Pin && c != Exclude && c != Include:
		return fmt.Errorf("%q is not a choice: want pin, exclude or include", c)
	case c != Exclude && r.own != "" && strings.HasPrefix(s.Name, r.own):
		return fmt.Errorf("%s: the gateways' own keys (%s*) are never placed", s, placement.Printable(r.own))
	}
	r.chosen[s] = c
	return nil
}

// Clear removes a choice. It returns false if there was no such choice.
func (r *Rules) Clear(s Subject) bool {
	_, ok := r.chosen[s]
	delete(r.chosen, s)
	return ok
}

// Chosen returns the operator's choice for exactly this subject, or "" if there is none.
func (r *Rules) Chosen(s Subject) Choice { return r.chosen[s] }

// Of returns the choice that applies to a key, and the subject of its rule. The choice is "" if no
// rule applies. byDefault is true if no operator has made the choice.
func (r *Rules) Of(key string) (c Choice, by Subject, byDefault bool) {
	if r.own != "" && strings.HasPrefix(key, r.own) {
		return Exclude, Subject{r.own, true}, true
	}
	if c := r.chosen[Subject{Name: key}]; c != "" {
		return c, Subject{Name: key}, false
	}
	if c := r.normal[Subject{Name: key}]; c != "" {
		return c, Subject{Name: key}, true
	}
	for n := len(key); n > 0; n-- {
		if c := r.chosen[Subject{key[:n], true}]; c != "" {
			return c, Subject{key[:n], true}, false
		}
		if c := r.normal[Subject{key[:n], true}]; c != "" {
			return c, Subject{key[:n], true}, true
		}
	}
	return "", Subject{}, false
}

// Pins returns the keys that are pinned by name, sorted.
func (r *Rules) Pins() []string { return r.pins(false) }

// PinnedPrefixes returns the pinned prefixes, sorted. All keys under such a prefix are pinned,
// except for keys with a narrower rule.
func (r *Rules) PinnedPrefixes() []string { return r.pins(true) }

func (r *Rules) pins(prefix bool) []string {
	var out []string
	for s, c := range r.chosen {
		if c == Pin && s.Prefix == prefix {
			out = append(out, s.Name)
		}
	}
	slices.Sort(out)
	return out
}

// Rule is a choice about a subject.
type Rule struct {
	Subject
	Choice  Choice
	Default bool // no operator has made this choice
}

// All lists the rules, defaults first.
func (r *Rules) All() []Rule {
	var out []Rule
	if r.own != "" {
		out = append(out, Rule{Subject{r.own, true}, Exclude, true})
	}
	add := func(m map[Subject]Choice, normal bool) {
		for _, s := range slices.SortedFunc(maps.Keys(m), func(a, b Subject) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), map[bool]int{true: 1, false: 0}[a.Prefix])
		}) {
			if _, over := r.chosen[s]; !normal || !over {
				out = append(out, Rule{s, m[s], normal})
			}
		}
	}
	add(r.normal, true)
	add(r.chosen, false)
	return out
}
