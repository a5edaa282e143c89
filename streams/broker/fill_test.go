package broker

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/streams/source"
)

// run is a function that serves as a source.
type run func(ctx context.Context, to source.Sink) error

func (r run) Run(ctx context.Context, to source.Sink) error { return r(ctx, to) }

// filled starts a broker whose streams get their records from a function, and opens one stream.
func filled(t *testing.T, dir string, c nodeapi.StreamConfig, r run) (*Broker, *Stream) {
	t.Helper()
	b := New(Options{Dir: dir, Sources: func(string, nodeapi.StreamSource) (source.Source, error) { return r, nil }})
	t.Cleanup(b.Drain)
	c.Source = &nodeapi.StreamSource{Etcd: &nodeapi.EtcdSource{}}
	return b, open(t, b, &c)
}

// counting is a source that appends increasing numbers without end. It continues at the position
// that its sink returns.
func counting(ctx context.Context, to source.Sink) error {
	for next := to.Place().Mark + 1; ; next++ {
		text := fmt.Sprint(next) + strings.Repeat(" ", 400-len(fmt.Sprint(next)))
		if err := to.Append(ctx, []stream.Record{{Data: []byte(text), Mark: next}}); err != nil {
			return err
		}
	}
}

// inOrder checks that the records of a partition are the numbers 1, 2, 3 and so on, according to
// their offsets.
func inOrder(t *testing.T, s *Stream, p int) {
	t.Helper()
	all := func(stream.Record) bool { return true }
	b, err := s.Read(soon(t), &nodeapi.ReadData{From: nodeapi.FromEarliest, Partition: p}, 1000, all)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range b.Records {
		want := b.Offset + uint64(i) + 1
		if got := strings.TrimSpace(string(r.Data)); got != fmt.Sprint(want) || r.Mark != want {
			t.Fatalf("record %d is %s, with the mark %d", want-1, got, r.Mark)
		}
	}
}

func next(s *Stream, partition int) uint64 { return s.State()[partition].Next }

// TestSourceFloods checks a source that appends without pause. It overwrites records that no
// consumer holds, and waits for consumers that hold records. While it waits, it does not delay
// other partitions.
func TestSourceFloods(t *testing.T) {
	c := *small
	c.Partitions = 2
	_, s := filled(t, "", c, counting)
	u, err := s.Subscribe(&nodeapi.SubscribeData{Partitions: []int{0}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	held := u.Answer.Partitions[0].Offset
	poll.Until(t, patience, "the ring of the consumer that reads nothing to be full", func() bool {
		return next(s, 0) >= held+7
	})
	at, full := next(s, 1), next(s, 0)
	poll.Until(t, patience, "the other partition to be overwritten many times", func() bool { return next(s, 1) > at+1000 })
	if got := next(s, 0); got > held+8 || got < full {
		t.Errorf("%d records are held in a ring of 8, then %d", full-held, got-held)
	}
	inOrder(t, s, 0)
	inOrder(t, s, 1)
	u.Close()
	poll.Until(t, patience, "it to go on", func() bool { return next(s, 0) > full+100 })
}

// TestSourceGoesOn checks that a source that is killed with its broker continues at its position in
// each partition. No record may be duplicated or missing.
func TestSourceGoesOn(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	c := *small
	c.Partitions = 2
	_, s := filled(t, dir, c, counting)
	for range 3 {
		before := next(s, 1)
		poll.Until(t, patience, "records", func() bool { return next(s, 1) > before+100 })
		dir = killed(t, dir)
		_, s = filled(t, dir, c, counting)
		inOrder(t, s, 0)
		inOrder(t, s, 1)
	}
}

// TestSourceEnds checks that a source that ends runs again after a pause. If a batch contains a
// record that is too large, the whole batch is refused, and earlier records remain.
func TestSourceEnds(t *testing.T) {
	var runs atomic.Int32
	_, s := filled(t, "", *small, func(ctx context.Context, to source.Sink) error {
		n := runs.Add(1)
		if n > 2 {
			<-ctx.Done()
			return ctx.Err()
		}
		large := make([]byte, to.MaxRecord()+1)
		err := to.Append(ctx, []stream.Record{{Data: large[:to.MaxRecord()], Mark: uint64(n)}, {Data: nil, Mark: 7}})
		if err != nil {
			t.Error(err)
		}
		err = to.Append(ctx, []stream.Record{{Data: []byte("ok")}, {Data: large}})
		if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeTooLarge}) {
			t.Errorf("what is too large: %v", err)
		}
		return err
	})
	poll.Until(t, patience, "it to be run again", func() bool { return runs.Load() == 3 })
	if n := next(s, 0); n != 4 {
		t.Errorf("%d records", n)
	}
	if n := s.b.counters.failures.Load(); n != 2 {
		t.Errorf("%d ends are counted", n)
	}
}

// TestSourceBlocks checks that a stream does not wait forever for a source that ignores its end.
// The stream ends, and the source's later calls of its sink fail and have no effect.
func TestSourceBlocks(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	wake, ended := make(chan struct{}), make(chan error, 1)
	b, s := filled(t, dir, *small, func(_ context.Context, to source.Sink) error {
		if to.Place().Next > 0 {
			return errors.New("it is run once")
		}
		_ = to.Append(context.Background(), []stream.Record{{Data: []byte("x")}})
		<-wake
		to.Had(func(stream.Record) { t.Error("it is told of what there was") })
		if to.Note(source.Note{Mark: 1}) == nil {
			t.Error("it may note something in a folder that is another stream's by now")
		}
		_ = to.Place()
		ended <- to.Append(context.Background(), []stream.Record{{Data: []byte("y")}})
		return nil
	})
	poll.Until(t, patience, "it to have begun", func() bool { return next(s, 0) == 1 })
	if err := b.Delete(soon(t), "ns", "s"); err != nil {
		t.Fatal(err)
	}
	again := open(t, b, small)
	close(wake)
	if err := <-ended; err == nil {
		t.Error("it has appended to a stream that is deleted")
	}
	if n := next(again, 0); n != 0 {
		t.Errorf("%d records are in the stream that came after", n)
	}
}

// TestSourceNotes checks that a source's note survives a crash of the broker.
func TestSourceNotes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "streams")
	noted := make(chan source.Place, 2)
	note := source.Note{Origin: "there", Mark: 7}
	do := func(ctx context.Context, to source.Sink) error {
		if n, _ := to.Partition(); n == 1 {
			noted <- to.Place()
			if err := to.Note(note); err != nil {
				t.Error(err)
			}
			noted <- to.Place()
		}
		<-ctx.Done()
		return nil
	}
	c := *small
	c.Partitions = 2
	filled(t, dir, c, do)
	for _, want := range []source.Note{{}, note} {
		if got := (<-noted).Note; got != want {
			t.Errorf("%+v, not %+v", got, want)
		}
	}
	filled(t, killed(t, dir), c, do)
	if got := (<-noted).Note; got != note {
		t.Errorf("after it was killed: %+v", got)
	}
}

// TestForgedRecords checks that programs cannot append to a stream that has a source.
func TestForgedRecords(t *testing.T) {
	_, s := filled(t, "", *small, func(ctx context.Context, _ source.Sink) error {
		<-ctx.Done()
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	_, n, err := s.Append(ctx, 0, []stream.Record{{Data: []byte("x"), Mark: 1 << 60}}, nil)
	if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeInvalidArgument}) || n != 0 || next(s, 0) != 0 {
		t.Errorf("%d, %v", n, err)
	}
}
