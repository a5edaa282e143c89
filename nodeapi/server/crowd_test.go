package server

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// soonStore is a store in memory that blocks reads of the key "slow" until the test releases them.
type soonStore struct {
	store.Store
	waiting atomic.Int32
	let     chan struct{} // each element releases one read
	// each element makes one blocked read call Done on its context, to simulate a read with a long
	// wait
	late chan struct{}
}

func (s *soonStore) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	if key.Name == "slow" {
		store.SoonAnswered(ctx)
		s.waiting.Add(1)
		defer s.waiting.Add(-1)
		select {
		case <-s.let:
		case <-s.late:
			_ = ctx.Done()
			<-s.let
		}
	}
	return s.Store.Get(ctx, key, eventual)
}

// TestCrowd checks when the server reads further requests of a connection while a request waits. If
// the client has sent one request at a time, and the request will be answered soon, the server must
// not read. If the client sends several requests at a time, or the answer is late, the server must
// read.
func TestCrowd(t *testing.T) {
	st := &soonStore{Store: store.NewMemory(1024 + cell.Plain.Overhead()), let: make(chan struct{}),
		late: make(chan struct{})}
	_, path := start(t, Config{Store: st})
	get := func(id int, key string) string {
		return fmt.Sprintf(`{"id":%d,"func":"get","data":{"key":"%s"}}`, id, key)
	}
	answer := func(id int, key string) string {
		return fmt.Sprintf(`{"id":%d,"data":{"key":"%s","found":false,"version":"0.0"}}`, id, key)
	}
	waits := func() {
		t.Helper()
		poll.Until(t, soon, "the read to wait", func() bool { return st.waiting.Load() == 1 })
	}
	// check a client that sends one request at a time: the second request waits for the first
	one := func(l *line, id int) {
		t.Helper()
		l.send(get(id, "slow"))
		waits()
		l.send(get(id+1, "k"))
		st.let <- struct{}{}
		l.expect(answer(id, "slow"))
		l.expect(answer(id+1, "k"))
	}
	several := func(l *line, id int) {
		t.Helper()
		l.send(get(id, "slow"))
		waits()
		l.ask(get(id+1, "k"), answer(id+1, "k"))
		st.let <- struct{}{}
		l.expect(answer(id, "slow"))
	}
	l := dial(t, path)
	one(l, 1)
	several(l, 3) // by now the server has noticed that a request arrived during the wait
	for n := range crowdFor {
		l.ask(get(10+n, "k"), answer(10+n, "k"))
	}
	one(l, 3)

	l = dial(t, path)
	l.send(strings.Join([]string{get(1, "slow"), get(2, "k")}, "\n"))
	l.expect(answer(2, "k"))
	st.let <- struct{}{}
	l.expect(answer(1, "slow"))
	several(l, 3)

	l = dial(t, path)
	l.send(get(1, "slow"))
	waits()
	st.late <- struct{}{}
	l.ask(get(2, "k"), answer(2, "k"))
	st.let <- struct{}{}
	l.expect(answer(1, "slow"))
}
