package store

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestMerge checks that reading two stores page by page finds each name of both stores exactly
// once, in order. If a key is in only one store and has its field Read set, Read must stay set.
func TestMerge(t *testing.T) {
	ctx := t.Context()
	for seed := range uint64(200) {
		draw := rand.New(rand.NewPCG(seed, 1))
		one, two := NewMemory(10), NewMemory(10)
		in := map[string]int{}
		for n := range draw.IntN(30) {
			key := Key{"ns", fmt.Sprintf("%02d", n)}
			if which := 1 + draw.IntN(3); which > 0 {
				in[key.Name] = which
				if which&1 != 0 {
					_, _ = one.Put(ctx, key, []byte("1"))
				}
				if which&2 != 0 {
					_, _ = two.Put(ctx, key, []byte("2"))
				}
			}
		}
		var names []string
		for r := (Range{Namespace: "ns", Most: 1 + draw.IntN(5), Bytes: 1 + draw.IntN(5)}); ; {
			a, _ := one.Page(ctx, r)
			b, _ := two.Page(ctx, r)
			page := Merge(a, b, r.Most)
			if len(page.Names) > r.Most || page.More && len(page.Names) == 0 {
				t.Fatalf("seed %d: %+v of at most %d", seed, page, r.Most)
			}
			for _, n := range page.Names {
				names = append(names, n.Key.Name)
				if want := in[n.Key.Name]; n.Read != (want != 3) || n.Read && string(n.Value) != fmt.Sprint(want) {
					t.Errorf("seed %d: %+v is in %d", seed, n, want)
				}
			}
			if !page.More {
				break
			}
			r.After = names[len(names)-1]
		}
		if !slices.IsSorted(names) || len(slices.Compact(names)) != len(in) || len(names) != len(in) {
			t.Fatalf("seed %d: %q, want %v", seed, names, in)
		}
	}
}
