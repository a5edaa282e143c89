package controller_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// slowStore is a Store whose Save can be made to wait for leave.
type slowStore struct {
	saved.Store
	slow  atomic.Bool
	leave chan struct{}
}

func (s *slowStore) Save(st *saved.State) error {
	if s.slow.Load() {
		<-s.leave
	}
	return s.Store.Save(st)
}

// TestGroupsAreMadeWhileTheRecordIs: while a configuration is being recorded, the controller
// creates its multicast groups in addition to those in use. It changes nothing else at the
// switches. Once the configuration is installed, it deletes the groups of the previous
// configuration.
func TestGroupsAreMadeWhileTheRecordIs(t *testing.T) {
	f := newFakes(t, nil)
	store := &slowStore{Store: f.store, leave: make(chan struct{})}
	f.store = store
	c, _ := f.start()
	ready(t, c)
	groups := func() (out [][]uint32) {
		for _, s := range f.servers {
			out = append(out, s.Groups())
		}
		return out
	}
	entries := func() [][]string { return [][]string{f.tables(0), f.tables(1), f.tables(2)} }
	before, had := groups(), entries()
	store.slow.Store(true)
	done := make(chan error, 1)
	go func() {
		frozen := true
		_, err := c.ChangeChain(t.Context(), "main", admin.ChainChange{Frozen: &frozen})
		done <- err
	}()
	poll.Until(t, 20*time.Second, "the groups of the next configuration are made", func() bool {
		for i, ids := range groups() {
			if len(ids) != 2*len(before[i]) {
				return false
			}
			for _, id := range before[i] {
				if !slices.Contains(ids, id) {
					t.Fatalf("s%d has %v, had %v, which packets take", i+1, ids, before[i])
				}
			}
		}
		return true
	}, func() string { return eventText(c) })
	for i, now := range entries() {
		if !slices.Equal(now, had[i]) {
			t.Errorf("s%d was changed before the record was made: %v, had %v", i+1, now, had[i])
		}
	}
	store.slow.Store(false)
	close(store.leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	poll.Until(t, 20*time.Second, "the groups of before are taken away", func() bool {
		for i, ids := range groups() {
			if len(ids) != len(before[i]) || len(ids) > 0 && slices.Equal(ids, before[i]) {
				return false
			}
		}
		return true
	}, func() string { return fmt.Sprint(before, groups(), eventText(c)) })
}
