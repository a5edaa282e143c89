package reconcilers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/cni-plugin/kube/chainplan"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/controlplane/chain/rejoin"
)

// fakeChains is a fake controller with one chain.
type fakeChains struct {
	epoch   uint16 // epoch of the chain after a recovery
	err     error
	changes []admin.ChainChange
	removed []string
}

func (f *fakeChains) Chain(context.Context, string) (*admin.Chain, error) {
	return &admin.Chain{Epoch: f.epoch}, nil
}

func (f *fakeChains) BringIn(context.Context, string, string) (*admin.Chain, error) {
	f.epoch += map[bool]uint16{true: 2}[f.err == nil || f.err.Error() == "late"]
	return nil, f.err
}

func (f *fakeChains) ChangeChain(_ context.Context, _ string, c admin.ChainChange) (*admin.Chain, error) {
	f.changes = append(f.changes, c)
	return nil, f.err
}

func (f *fakeChains) RemoveKey(_ context.Context, _, key string) error {
	f.removed = append(f.removed, key)
	return f.err
}

// TestSettled checks that a node's switch joins only after it was ready, and not a member, for a
// while.
func TestSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		settle := rejoin.Default().Settle
		tm := &term{back: rejoin.New(rejoin.Default()), began: time.Now()}
		nodes := testutil.Cluster(3)
		all := map[string]bool{}
		for _, n := range nodes {
			all[n.Name] = true
		}
		spare, lost := nodes[0].Name, nodes[1].Name
		is := &admin.Chain{Name: "main", Members: []admin.Member{{Switch: lost}}}
		look := func(ready map[string]bool, want ...string) {
			t.Helper()
			steady := tm.settled(is, nodes, ready)
			var got []string
			for _, n := range nodes[:2] {
				if steady(n.Name) {
					got = append(got, n.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %v there are %v, not %v", time.Since(tm.began), got, want)
			}
		}
		look(all)
		time.Sleep(settle)
		look(all, spare)
		is.Members = nil // the member is lost, although its switch was always ready
		look(all, spare)
		time.Sleep(settle / 2)
		look(all, spare)
		look(map[string]bool{spare: true}, spare)
		look(all, spare)
		time.Sleep(settle / 2)
		look(all, spare)
		time.Sleep(settle / 2)
		look(all, spare, lost)
	})
}

// TestTake checks that a step is executed. A switch that has joined, or that has cost epochs in
// vain, must be ready for longer before the next step. A switch that was refused at once need not.
func TestTake(t *testing.T) {
	lease := 500
	settle := rejoin.Default().Settle
	tm := &term{back: rejoin.New(rejoin.Default()), began: time.Now()}
	c := &fakeChains{}
	for _, s := range []*chainplan.Step{{Lease: &lease}, {Members: []string{"a", "b"}}} {
		if err := tm.take(t.Context(), c, "main", s); err != nil {
			t.Fatal(err)
		}
	}
	if n := c.changes; len(n) != 2 || *n[0].LeaseMillis != lease || n[0].Members != nil ||
		n[1].LeaseMillis != nil || !slices.Equal(*n[1].Members, []string{"a", "b"}) {
		t.Errorf("changed: %+v", n)
	}
	for _, x := range []struct {
		err  error
		wait time.Duration
	}{{errors.New("refused"), settle}, {nil, 2 * settle}, {errors.New("late"), 4 * settle}, {errors.New("refused"), 4 * settle}} {
		c.err = x.err
		if err := tm.take(t.Context(), c, "main", &chainplan.Step{BringIn: "s3"}); !errors.Is(err, x.err) {
			t.Errorf("%v: %v", x.err, err)
		}
		if got := tm.back.Wait(time.Since(tm.began), rejoin.Candidate{Chain: "main", Switch: "s3"}); got != x.wait {
			t.Errorf("after %v it has to be ready for %v, not %v", x.err, got, x.wait)
		}
	}
}
