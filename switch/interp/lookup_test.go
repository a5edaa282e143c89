package interp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/netcraq/netcraq/switch/target"
)

// TestLookups fills the tables of the test program with random entries, and changes and removes
// some of them. It compares the hits of random packets with a search through all present entries.
func TestLookups(t *testing.T) {
	p := load(t, "tables", Options{})
	r := rand.New(rand.NewPCG(7, 8))
	value := func(n int) []byte { // only a few bits are set, so that many packets match
		b := make([]byte, n)
		b[n-1] = byte(r.IntN(6))
		if r.IntN(4) == 0 {
			b[0] = byte(r.IntN(3)) << 5
		}
		return b
	}
	masks := func(n int) []byte {
		b := make([]byte, n)
		switch r.IntN(3) {
		case 0:
		case 1:
			b[n-1] = byte(1<<r.IntN(4) - 1)
			b[0] = 0xe0
		case 2:
			for i := range b {
				b[i] = 0xff
			}
		}
		return b
	}
	// The frame has a byte named `which` and the fields a (16 bits), b (32), c (7), d (1) and wide
	// (72).
	tables := []struct {
		which byte
		name  string
		match func() []target.FieldMatch
		hits  func(e *target.TableEntry, f []byte) bool
	}{
		{0, "I.exact_t", func() []target.FieldMatch {
			return []target.FieldMatch{{Value: value(2)}, {Value: []byte{byte(r.IntN(2))}}}
		},
			func(e *target.TableEntry, f []byte) bool {
				return bytes.Equal(f[1:3], e.Match[0].Value) && f[7]&1 == e.Match[1].Value[0]
			}},
		{1, "I.wide_t", func() []target.FieldMatch {
			return []target.FieldMatch{{Value: value(9)},
				{Value: value(4)}}
		},
			func(e *target.TableEntry, f []byte) bool {
				return bytes.Equal(f[8:17], e.Match[0].Value) &&
					bytes.Equal(f[3:7], e.Match[1].Value)
			}},
		{2, "I.lpm_t", func() []target.FieldMatch {
			return []target.FieldMatch{{Value: value(4),
				PrefixLen: []int{0, 3, 29, 30, 31, 32}[r.IntN(6)]},
				{Value: []byte{byte(r.IntN(3))}}}
		},
			func(e *target.TableEntry, f []byte) bool {
				n := e.Match[0].PrefixLen
				for i := range n {
					if (f[3+i/8]^e.Match[0].Value[i/8])>>(7-i%8)&1 == 1 {
						return false
					}
				}
				return f[7]>>1 == e.Match[1].Value[0]
			}},
		{3, "I.ternary_t", func() []target.FieldMatch {
			return []target.FieldMatch{{Value: value(4), Mask: masks(4)},
				{Value: value(9), Mask: masks(9)}}
		},
			func(e *target.TableEntry, f []byte) bool {
				return masked(f[3:7], e.Match[0]) && masked(f[8:17], e.Match[1])
			}},
		{5, "I.range_t", func() []target.FieldMatch {
			a, b := value(2), value(2)
			if bytes.Compare(a, b) > 0 {
				a, b = b, a
			}
			return []target.FieldMatch{{Value: a, Mask: b}, {Value: value(4), Mask: masks(4)}}
		},
			func(e *target.TableEntry, f []byte) bool {
				return bytes.Compare(f[1:3], e.Match[0].Value) >= 0 &&
					bytes.Compare(f[1:3], e.Match[0].Mask) <= 0 && masked(f[3:7], e.Match[1])
			}},
	}
	for _, tt := range tables {
		t.Run(tt.name, func(t *testing.T) {
			p.src.Table(tt.name).MaxSize = 1 << 20
			prio := p.src.Table(tt.name).NeedsPriority()
			have := map[string]*target.TableEntry{}
			order := map[string]int{}
			count, hits := 0, 0
			for step := range 4000 {
				e := &target.TableEntry{Match: tt.match(), Action: act("I.set", []byte{byte(step)})}
				if tt.which == 0 {
					e.Action.Action = "I.counted"
				}
				if prio {
					e.Priority = 1 + r.IntN(5)
				}
				key := canonicalKey(e)
				_, there := have[key]
				switch r.IntN(4) {
				case 0, 1:
					err := p.InsertEntry(tt.name, e)
					if there != errors.Is(err, target.ErrExists) || !there && err != nil {
						t.Fatalf("insert: %v, there: %t", err, there)
					}
					if !there {
						have[key], order[key] = e, count
						count++
					}
				case 2:
					err := p.ModifyEntry(tt.name, e)
					if there == errors.Is(err, target.ErrNotFound) || there && err != nil {
						t.Fatalf("modify: %v, there: %t", err, there)
					}
					if there {
						have[key] = e
					}
				case 3:
					err := p.DeleteEntry(tt.name, e)
					if there == errors.Is(err, target.ErrNotFound) || there && err != nil {
						t.Fatalf("delete: %v, there: %t", err, there)
					}
					delete(have, key)
				}
				f := append([]byte{tt.which}, value(2)...)
				f = append(append(append(f, value(4)...), byte(r.IntN(8))), value(9)...)
				var best *target.TableEntry
				bestAt := 0
				for k, e := range have {
					if !tt.hits(e, f) {
						continue
					}
					better := best == nil || e.Priority > best.Priority ||
						e.Priority == best.Priority && order[k] < bestAt
					if tt.which == 2 && best != nil {
						better = e.Match[0].PrefixLen > best.Match[0].PrefixLen
					}
					if better {
						best, bestAt = e, order[k]
					}
				}
				want := byte(0)
				if tt.which == 1 {
					want = 0xee // the value in the default entry
				}
				if best != nil {
					want = best.Action.Params[0][0]
					hits++
				}
				outs := p.Process(0, 0, f)
				if len(outs) != 1 || outs[0].Frame[0] != want {
					t.Fatalf("step %d: frame %x gives %v, want %02x from %+v", step, f, outs, want,
						best)
				}
			}
			entries, err := p.Entries(tt.name)
			if err != nil || len(entries) != len(have) {
				t.Errorf("%d entries, want %d: %v", len(entries), len(have), err)
			}
			for i := range entries {
				if h := have[canonicalKey(&entries[i])]; h == nil ||
					!bytes.Equal(h.Action.Params[0], entries[i].Action.Params[0]) {
					t.Errorf("entry %+v is not among those that were put in", entries[i])
				}
			}
			t.Logf("%d entries at the end, %d packets hit one", len(have), hits)
			if hits < 100 {
				t.Errorf("only %d packets hit anything", hits)
			}
		})
	}
}

func masked(v []byte, m target.FieldMatch) bool {
	for i := range v {
		if (v[i]^m.Value[i])&m.Mask[i] != 0 {
			return false
		}
	}
	return true
}

// canonicalKey returns a string that identifies the match and priority of an entry. It ignores the
// bits that do not matter.
func canonicalKey(e *target.TableEntry) string {
	s := fmt.Sprint(e.Priority)
	for _, m := range e.Match {
		v := bytes.Clone(m.Value)
		switch {
		case m.PrefixLen > 0 || len(m.Mask) == 0 && len(v) == 4 && len(e.Match) == 2 &&
			len(e.Match[1].Value) == 1:
			for i := m.PrefixLen; i < len(v)*8; i++ {
				v[i/8] &^= 0x80 >> (i % 8)
			}
		case len(m.Mask) == len(v) && len(v) != 2:
			for i := range v {
				v[i] &= m.Mask[i]
			}
		}
		s += fmt.Sprintf(" %x/%x/%d", v, m.Mask, m.PrefixLen)
	}
	return s
}
