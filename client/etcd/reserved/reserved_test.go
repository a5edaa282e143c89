package reserved

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// in reports whether a span contains a key, by etcd's rules.
func (s Span) in(key string) bool {
	if s.End == "" {
		return key == s.Key
	}
	return key >= s.Key && before(key, s.End)
}

// The parts of a span are in order, do not overlap, and contain exactly the span's unreserved keys.
func TestWithout(t *testing.T) {
	letters := []string{"", "a", "b", "c", "d", "\xff"}
	var words []string
	for _, a := range letters {
		for _, b := range letters {
			for _, c := range letters {
				words = append(words, a+b+c)
			}
		}
	}
	slices.Sort(words)
	words = slices.Compact(words)
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string { return words[r.IntN(len(words))] }
	split := 0
	for range 4000 {
		var prefixes []string
		for range r.IntN(4) {
			prefixes = append(prefixes, word())
		}
		k := With(prefixes...)
		s := Span{word(), word()}
		if r.IntN(4) == 0 {
			s.End = Open
		}
		parts := k.Without(s.Key, s.End)
		if len(parts) > 1 {
			split++
		}
		touches := false
		for _, w := range words {
			if w == "" {
				continue
			}
			reserved := slices.ContainsFunc(prefixes, func(p string) bool {
				return p != "" && len(w) >= len(p) && w[:len(p)] == p
			})
			if k.Has(w) != reserved {
				t.Fatalf("%q: Has(%q) is %v", prefixes, w, k.Has(w))
			}
			inParts := 0
			for _, p := range parts {
				if p.in(w) {
					inParts++
				}
			}
			want := 0
			if s.in(w) && (!reserved || s.Key == "") {
				want = 1
			}
			if inParts != want {
				t.Fatalf("%q without %q is %q, which has %q %d times", s, prefixes, parts, w, inParts)
			}
			touches = touches || s.in(w) && reserved && s.Key != ""
		}
		// The span may touch reserved keys that are not in the list of words.
		if touches && !k.Touches(s.Key, s.End) {
			t.Fatalf("%q does not touch %q", s, prefixes)
		}
		if !slices.IsSortedFunc(parts, func(a, b Span) int { return slices.Compare([]byte(a.Key), []byte(b.Key)) }) {
			t.Fatalf("%q", parts)
		}
	}
	if split < 100 {
		t.Errorf("only %d spans were split", split)
	}
}

// An empty prefix, or a prefix that begins with another prefix, adds nothing.
func TestWith(t *testing.T) {
	k := With("/n/g/", "", "/n/", "/m/", "/n/")
	if got := fmt.Sprint(k.Prefixes()); got != "[/m/ /n/]" {
		t.Error(got)
	}
	if err := k.Denied(); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	var none Keys
	if none.Has("a") || none.Touches("a", Open) || len(none.Without("a", Open)) != 1 {
		t.Error("the zero value has keys")
	}
}
