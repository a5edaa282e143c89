package guarded

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/etcd/guardedshell"
)

// slow provides slots whose replies to reads are delayed.
type slow struct {
	Slots
	most time.Duration
}

func (s slow) Read(ctx context.Context, id wire.Key) ([]byte, wire.Version, error) {
	b, version, err := s.Slots.Read(ctx, id)
	time.Sleep(rand.N(s.most))
	return b, version, err
}

// A client that reads a key and then watches it from the next revision on misses no write, however
// late the slot's reply comes. The watch's first event is the write that follows the write that the
// client has read.
func TestGetThenWatch(t *testing.T) {
	endpoint := startEtcd(t)
	slots := newMemory(128)
	writer, reader := newLive(t, endpoint, slots, nil), newLive(t, endpoint, slow{slots, 3 * time.Millisecond}, nil)
	p := newPlacement(writer.client, slots)
	e := p.place(t, "k")
	writer.knows(t, e)
	reader.knows(t, e)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	if _, err := writer.Put(ctx, putOf("k", "0")); err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() {
		for n := 1; ; n++ {
			a, err := writer.Put(context.WithoutCancel(ctx), putOf("k", strconv.Itoa(n)))
			if err != nil || ctx.Err() != nil {
				written <- err
				return
			}
			reader.Saw(a.Header.Revision) // The gateway also calls Saw for other answers.
			time.Sleep(rand.N(4 * time.Millisecond))
		}
	}()
	const reads = 100
	for range reads {
		a, err := reader.Range(ctx, rangeOf("k"))
		if err != nil || len(a.Kvs) != 1 {
			t.Fatalf("%v, %v", a, err)
		}
		n, err := strconv.Atoi(string(a.Kvs[0].Value))
		if err != nil {
			t.Fatal(err)
		}
		watching, done := context.WithCancel(ctx)
		news := <-reader.client.Watch(watching, "k", clientv3.WithRev(a.Header.Revision+1))
		done()
		if len(news.Events) == 0 {
			t.Fatalf("the watch ended: %v", news.Err())
		}
		if got := string(news.Events[0].Kv.Value); got != strconv.Itoa(n+1) {
			t.Fatalf("read %d in an answer of revision %d; the watch from the next one on begins with %s, of revision %d", n, a.Header.Revision, got, news.Events[0].Kv.ModRevision)
		}
	}
	stop()
	if err := <-written; err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d reads were answered by the network, %d by etcd because the slot was ahead of what etcd had told", reader.hitCount(), reads, reader.misses[reasonAhead])
	if reader.hitCount() < reads/20 {
		t.Errorf("only %d of %d reads were answered by the network", reader.hitCount(), reads)
	}
}

// A client may have seen a newer revision at etcd or at another gateway. This gateway may then
// answer with an older revision, because etcd has not answered this gateway since. Even so, the
// key's state is current, and it is also the key's state at the returned revision. The function
// Everybody asks etcd four times a second, after which the gateway knows the newer revision.
func TestRevisionSeenElsewhere(t *testing.T) {
	endpoint := startEtcd(t)
	slots := newMemory(128)
	here, there := newLive(t, endpoint, slots, nil), newLive(t, endpoint, slots, nil)
	p := newPlacement(there.client, slots)
	e := p.place(t, "k")
	here.knows(t, e)
	there.knows(t, e)
	ctx := t.Context()
	put, err := here.Put(ctx, putOf("k", "v"))
	if err != nil {
		t.Fatal(err)
	}
	var seen int64
	for i := range 5 {
		a, err := there.Put(ctx, putOf(fmt.Sprint("other", i), "v"))
		if err != nil {
			t.Fatal(err)
		}
		seen = a.Header.Revision
	}
	a, err := here.Range(ctx, rangeOf("k"))
	if err != nil || here.hitCount() != 1 || string(a.Kvs[0].Value) != "v" || a.Header.Revision < put.Header.Revision {
		t.Fatalf("%v, %v", a, err)
	}
	if a.Header.Revision >= seen {
		t.Errorf("the answer is of revision %d: who told the gateway of that?", a.Header.Revision)
	}
	then, err := here.client.Get(ctx, "k", clientv3.WithRev(a.Header.Revision))
	if err != nil || len(then.Kvs) != 1 || !sameKV(then.Kvs[0], a.Kvs[0]) {
		t.Errorf("at the answer's revision etcd had %v, %v; the answer is %v", then, err, a)
	}
	everybody := guardedshell.NewEverybody(here.client, livePrefix, here.counter)
	defer everybody.Close()
	began := time.Now()
	until(t, "the revision that was seen elsewhere is told", func() bool {
		a, err := here.Range(ctx, rangeOf("k"))
		return err == nil && a.Header.Revision >= seen
	})
	t.Logf("after %v", time.Since(began))
	if here.misses[reasonAhead] != 0 {
		t.Errorf("%v", here.misses)
	}
}
