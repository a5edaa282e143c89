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

// soonStore answers reads of the key "slow" when the test lets it.
type soonStore struct {
	store.Store
	waiting atomic.Int32
	let     chan struct{} // an element ends one read
	late    chan struct{} // an element makes a read wait as for long
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

// While a request waits that is answered soon, the connection's next requests wait as well, if the
// client has had one request at a time. They do not if it sends several, or if the answer is late.
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
	one := func(l *line, id int) { // one request at a time: the second one waits for the first
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
	several(l, 3) // it has been noticed that a request came meanwhile
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
