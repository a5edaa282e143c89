package etcdevents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/durable"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

const long = 60 * time.Second

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), long)
	t.Cleanup(cancel)
	return ctx
}

// server is a broker whose streams are filled from an etcd, as in the server of a node.
type server struct {
	t      *testing.T
	dir    string
	b      *broker.Broker
	origin *Origin
}

func serve(t *testing.T, dir string, endpoints ...string) *server {
	t.Helper()
	etcd, err := durable.Dial(durable.Access{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: dir, origin: New(etcd, Rules{"ns": {"/a/"}})}
	s.b = broker.New(broker.Options{Dir: dir, Sources: s.origin.Make})
	t.Cleanup(func() {
		s.b.Drain()
		_ = etcd.Close()
	})
	return s
}

// killed returns a server that replaces a server that was killed at this moment. It has a copy of
// the folder of the killed server.
func (s *server) killed(endpoints ...string) *server {
	s.t.Helper()
	dir := filepath.Join(s.t.TempDir(), "streams")
	if err := errors.Join(os.CopyFS(dir, os.DirFS(s.dir)), os.Chmod(dir, 0o700)); err != nil {
		s.t.Fatal(err)
	}
	s.b.Drain()
	return serve(s.t, dir, endpoints...)
}

func (s *server) open(c nodeapi.StreamConfig) *broker.Stream {
	s.t.Helper()
	c.Source = &nodeapi.StreamSource{Etcd: &nodeapi.EtcdSource{Prefix: "/a/"}}
	out, _, err := s.b.Open(soon(s.t), "ns", "s", &c, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return out
}

// told returns the events in a partition. It fails unless their offsets are consecutive.
func told(t *testing.T, s *broker.Stream, p int) (out []nodeapi.EtcdEvent) {
	t.Helper()
	for next := s.State()[p].Oldest; next < s.State()[p].Next; {
		all := func(stream.Record) bool { return true }
		b, err := s.Read(soon(t), &nodeapi.ReadData{Partition: p, Offset: &next}, 1000, all)
		if err != nil || b.Missed > 0 {
			t.Fatal(b.Missed, err)
		}
		for _, r := range b.Records {
			var e nodeapi.EtcdEvent
			if err := json.Unmarshal(r.Data, &e); err != nil || uint64(e.Revision) != r.Mark {
				t.Fatalf("%s, with the mark %d: %v", r.Data, r.Mark, err)
			}
			out = append(out, e)
		}
		next = b.Next
	}
	return out
}

// short returns those fields of events that a test compares.
func short(all []nodeapi.EtcdEvent) (out []string) {
	for _, e := range all {
		text := e.Type
		if e.Key != "" {
			text += " " + e.Key
		}
		if e.Value != nil {
			text += "=" + *e.Value
		}
		if e.State && e.Type == nodeapi.EtcdPut {
			text += " (state)"
		}
		out = append(out, text)
	}
	return out
}

// expect waits until the first partition has the expected events.
func expect(t *testing.T, s *broker.Stream, want ...string) {
	t.Helper()
	var got []string
	poll.Until(t, long, fmt.Sprintf("events %q", want), func() bool {
		got = short(told(t, s, 0))
		return slices.Equal(got, want)
	}, func() string { return fmt.Sprintf("there are %q", got) })
}

func put(t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	a, err := c.Put(soon(t), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return a.Header.Revision
}

func remove(t *testing.T, c *clientv3.Client, key string) int64 {
	t.Helper()
	a, err := c.Delete(soon(t), key)
	if err != nil || a.Deleted != 1 {
		t.Fatal(a, err)
	}
	return a.Header.Revision
}

func compact(t *testing.T, c *clientv3.Client, at int64) {
	t.Helper()
	if _, err := c.Compact(soon(t), at, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
}

// TestEvents checks that existing keys are reported as state, and later changes when they happen.
// Only keys with the prefix may be reported.
func TestEvents(t *testing.T) {
	endpoint := etcdtest.Start(t)
	c := etcdtest.Client(t, endpoint)
	put(t, c, "/a/gone", "x")
	put(t, c, "/a/k", "1")
	put(t, c, "/a/k", "2")
	put(t, c, "/b", "not this one")
	remove(t, c, "/a/gone")
	s := serve(t, "", endpoint).open(nodeapi.StreamConfig{})
	want := []string{"state", "put /a/k=2 (state)", "synced"}
	expect(t, s, want...)
	put(t, c, "/b", "nor this")
	put(t, c, "/a/k", "3")
	remove(t, c, "/a/k")
	if _, err := c.Txn(soon(t)).Then(clientv3.OpPut("/a/x", ""), clientv3.OpPut("/a/y", "2")).Commit(); err != nil {
		t.Fatal(err)
	}
	expect(t, s, append(want, "put /a/k=3", "delete /a/k", "put /a/x=", "put /a/y=2")...)
	all := told(t, s, 0)
	if all[1].Version != 2 || all[3].Version != 3 || !all[5].More || all[6].More || all[5].Revision != all[6].Revision {
		t.Errorf("%+v", all)
	}
}

// history returns all events for the keys with the prefix, as etcd reports them.
func history(t *testing.T, c *clientv3.Client, until int64) (out []nodeapi.EtcdEvent) {
	t.Helper()
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	put(t, c, "/a/end", "x")
	for a := range c.Watch(ctx, "/a/", clientv3.WithPrefix(), clientv3.WithRev(1)) {
		if err := a.Err(); err != nil {
			t.Fatal(err)
		}
		for _, e := range a.Events {
			if e.Kv.ModRevision > until {
				return out
			}
			out = append(out, event(e.Type, e.Kv))
		}
	}
	t.Fatal("the watch has ended")
	return nil
}

// TestKilled kills servers and etcd while keys are written, some of them in transactions. Each
// partition must have each event of its keys exactly once, in etcd's order.
func TestKilled(t *testing.T) {
	const partitions = 3
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	endpoints := cluster.Endpoints()
	c := etcdtest.Client(t, endpoints...)
	config := nodeapi.StreamConfig{Partitions: partitions, Objects: 256}
	sv := serve(t, filepath.Join(t.TempDir(), "streams"), endpoints...)
	s := sv.open(config)
	for p := range partitions {
		poll.Until(t, long, "the state", func() bool { return s.State()[p].Next == 2 })
	}
	ctx, stop := context.WithCancel(t.Context())
	wrote := make(chan int64, 1)
	go func() {
		last := int64(0)
		for ctx.Err() == nil {
			var ops []clientv3.Op
			for i := range rand.Perm(20)[:1+rand.IntN(10)] {
				key := fmt.Sprintf("/a/%d", i)
				if rand.IntN(4) == 0 {
					ops = append(ops, clientv3.OpDelete(key))
				} else {
					ops = append(ops, clientv3.OpPut(key, fmt.Sprint(rand.Int())))
				}
			}
			short, cancel := context.WithTimeout(ctx, 2*time.Second)
			if a, err := c.Txn(short).Then(ops...).Commit(); err == nil {
				last = a.Header.Revision
			}
			cancel()
			time.Sleep(time.Millisecond)
		}
		wrote <- last
	}()
	for i := range 4 {
		before := s.State()[i%partitions].Next
		poll.Until(t, long, "more events", func() bool { return s.State()[i%partitions].Next > before+50 })
		if i == 1 {
			cluster.Kill(0)
			cluster.Start(0)
			continue
		}
		sv = sv.killed(endpoints...)
		s = sv.open(config)
	}
	stop()
	until := <-wrote
	want := make([][]string, partitions)
	for _, e := range history(t, c, until) {
		p := source.Partition(e.Key, partitions)
		want[p] = append(want[p], fmt.Sprintln(e.Revision, short([]nodeapi.EtcdEvent{e})))
	}
	for p := range partitions {
		var got []string
		poll.Until(t, long, "all events", func() bool {
			all := told(t, s, p)
			got = got[:0]
			for _, e := range all {
				if e.Revision > until { // ignore the event that marks the end of the history
					break
				}
				got = append(got, fmt.Sprintln(e.Revision, short([]nodeapi.EtcdEvent{e})))
			}
			return len(got) >= len(want[p])+2
		}, func() string { return fmt.Sprintf("%d of %d", len(got), len(want[p])+2) })
		for i, w := range want[p] {
			if got[i+2] != w {
				t.Fatalf("partition %d: event %d is %s, not %s", p, i, got[i+2], w)
			}
		}
		t.Logf("partition %d: %d events", p, len(want[p]))
	}
}

// TestCompacted checks that if etcd has compacted events, the state is reported, with the number of
// events that may be missing. The same must happen if etcd has compacted exactly the next revision,
// because etcd then silently omits the deletions of that revision.
func TestCompacted(t *testing.T) {
	for _, c := range []struct {
		name   string
		beyond int64 // number of revisions from the deletion to the compaction
	}{{"to the deletion", 0}, {"behind it", 1}} {
		t.Run(c.name, func(t *testing.T) {
			endpoint := etcdtest.Start(t)
			etcd := etcdtest.Client(t, endpoint)
			sv := serve(t, filepath.Join(t.TempDir(), "streams"), endpoint)
			s := sv.open(nodeapi.StreamConfig{})
			expect(t, s, "state", "synced")
			put(t, etcd, "/a/x", "1")
			last := put(t, etcd, "/a/y", "1")
			want := []string{"state", "synced", "put /a/x=1", "put /a/y=1"}
			expect(t, s, want...)
			sv.b.Drain()
			gone := remove(t, etcd, "/a/x")
			now := put(t, etcd, "/b", "something else")
			compact(t, etcd, gone+c.beyond)
			sv = sv.killed(endpoint)
			s = sv.open(nodeapi.StreamConfig{})
			want = append(want, "state", "put /a/y=1 (state)", "synced")
			expect(t, s, want...)
			if e := told(t, s, 0)[4]; e.Since != last || e.Revision != now || e.Missed != now-last {
				t.Errorf("%+v; the last that was told is %d, etcd is at %d", e, last, now)
			}
			put(t, etcd, "/a/x", "2")
			expect(t, s, append(want, "put /a/x=2")...)
		})
	}
}

// TestCompactedBeside checks that a compaction while the server runs loses no events. Keys outside
// of the prefix must not matter.
func TestCompactedBeside(t *testing.T) {
	cluster := etcdtest.New(t, 1, etcdtest.Options{})
	etcd := etcdtest.Client(t, cluster.Endpoints()...)
	s := serve(t, "", cluster.Endpoints()...).open(nodeapi.StreamConfig{})
	expect(t, s, "state", "synced")
	put(t, etcd, "/a/x", "1")
	expect(t, s, "state", "synced", "put /a/x=1")
	compact(t, etcd, put(t, etcd, "/b", "1"))
	put(t, etcd, "/a/x", "2")
	expect(t, s, "state", "synced", "put /a/x=1", "put /a/x=2")
}

// TestKilledInState kills a server while it reports the state and waits for a consumer. Its
// successor must report the state again, and must not take the part that was reported for the whole
// state.
func TestKilledInState(t *testing.T) {
	endpoint := etcdtest.Start(t)
	etcd := etcdtest.Client(t, endpoint)
	subscribed := make(chan struct{})
	gate, _ := meter(t, endpoint, subscribed)
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprintf("/a/%02d", i))
	}
	// write in random order, so that the order of revisions differs from the order of names
	for _, i := range rand.Perm(len(keys)) {
		put(t, etcd, keys[i], strings.Repeat("x", 300))
	}
	small := nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 4, StallMillis: 3_600_000, KeepMillis: 1000}
	sv := serve(t, filepath.Join(t.TempDir(), "streams"), gate)
	s := sv.open(small)
	// This subscription holds the first records of the state.
	u, err := s.Subscribe(&nodeapi.SubscribeData{From: nodeapi.FromEarliest}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	close(subscribed)
	poll.Until(t, long, "the ring to be full", func() bool { return s.State()[0].Next >= 7 })
	sv = sv.killed(endpoint)
	s = sv.open(small)
	var all []nodeapi.EtcdEvent
	next, ctx := uint64(0), soon(t)
	for {
		if ctx.Err() != nil {
			t.Fatalf("the state did not end; there are %q", short(all))
		}
		b, err := s.Read(ctx, &nodeapi.ReadData{Offset: &next, Consumer: "me"}, 1000,
			func(stream.Record) bool { return true })
		if err != nil || b.Missed > 0 && next > 0 {
			t.Fatal(b.Missed, err)
		}
		for _, r := range b.Records {
			var e nodeapi.EtcdEvent
			if err := json.Unmarshal(r.Data, &e); err != nil {
				t.Fatal(err)
			}
			all = append(all, e)
		}
		if next = b.Next; len(all) > 0 && all[len(all)-1].Type == nodeapi.EtcdSynced {
			break
		}
		time.Sleep(time.Millisecond)
	}
	begin := 0
	for i, e := range all {
		if e.Type == nodeapi.EtcdState {
			begin = i
		}
	}
	var got []string
	for _, e := range all[begin+1 : len(all)-1] {
		got = append(got, e.Key)
	}
	if !slices.Equal(got, keys) {
		t.Errorf("%q", got)
	}
}

// dying is a sink whose server dies after a number of records, in the middle of an append.
type dying struct {
	records []stream.Record
	note    source.Note
	left    int
}

var errDied = errors.New("killed")

func (d *dying) Partition() (n, of int)   { return 0, 1 }
func (d *dying) MaxRecord() int           { return 1 << 20 }
func (d *dying) Missed(uint64)            {}
func (d *dying) Note(n source.Note) error { d.note = n; return nil }
func (d *dying) Had(tell func(stream.Record)) { // as in a ring, only the last records still exist
	for _, r := range d.records[max(0, len(d.records)-3):] {
		tell(r)
	}
}

func (d *dying) Place() source.Place {
	p := source.Place{Next: uint64(len(d.records)), Note: d.note}
	if n := len(d.records); n > 0 {
		p.Mark = d.records[n-1].Mark
	}
	return p
}

func (d *dying) Append(_ context.Context, all []stream.Record) error {
	for _, r := range all {
		if d.left == 0 {
			return errDied
		}
		d.left--
		d.records = append(d.records, r)
	}
	return nil
}

// TestKilledInRevision checks that a server that was killed between two records of the same
// revision continues between these records.
func TestKilledInRevision(t *testing.T) {
	endpoint := etcdtest.Start(t)
	etcd := etcdtest.Client(t, endpoint)
	sv := serve(t, "", endpoint)
	from, err := sv.origin.Make("ns", nodeapi.StreamSource{Etcd: &nodeapi.EtcdSource{Prefix: "/a/"}})
	if err != nil {
		t.Fatal(err)
	}
	sink := &dying{left: 2} // the two records that report an empty state
	if err := run(t, from, sink); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	want := []string{"state", "synced"}
	for i := range 5 {
		var ops []clientv3.Op
		for j := range 6 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/a/%d", j), fmt.Sprint(i)))
			want = append(want, fmt.Sprintf("put /a/%d=%d", j, i))
		}
		if _, err := etcd.Txn(soon(t)).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	for len(sink.records) < len(want) {
		sink.left = min(1+rand.IntN(8), len(want)-len(sink.records))
		if err := run(t, from, sink); sink.left > 0 {
			t.Fatal(err)
		}
	}
	sink.left = 1
	_ = run(t, from, sink)
	var all []nodeapi.EtcdEvent
	for _, r := range sink.records {
		var e nodeapi.EtcdEvent
		if err := json.Unmarshal(r.Data, &e); err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	if got := short(all); !slices.Equal(got, want) {
		t.Errorf("%q, not %q", got, want)
	}
}

// run runs a source until its sink dies or has all records.
func run(t *testing.T, from source.Source, to *dying) error {
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err := from.Run(short, to)
	if !errors.Is(err, errDied) { // gRPC has the same deadline, and may return its own error first
		<-short.Done()
		return short.Err()
	}
	return err
}

// TestAnotherEtcd checks that revisions of two different etcd clusters are not compared.
func TestAnotherEtcd(t *testing.T) {
	// The URLs of the members determine the ID of a cluster. These URLs differ in their ports.
	first, second := etcdtest.Start(t), etcdtest.Start(t)
	one, two := etcdtest.Client(t, first), etcdtest.Client(t, second)
	sv := serve(t, filepath.Join(t.TempDir(), "streams"), first)
	s := sv.open(nodeapi.StreamConfig{})
	for i := range 10 {
		put(t, one, "/a/x", fmt.Sprint(i))
	}
	poll.Until(t, long, "the first etcd's events", func() bool {
		all := told(t, s, 0)
		return len(all) > 0 && all[len(all)-1].Version == 10
	})
	before := short(told(t, s, 0))
	put(t, two, "/a/y", "1")
	for range 20 {
		// raise the revision, because otherwise the low revision would reveal that this is another
		// etcd
		put(t, two, "/b", "1")
	}
	sv = sv.killed(second)
	s = sv.open(nodeapi.StreamConfig{})
	want := append(before, "state", "put /a/y=1 (state)", "synced")
	expect(t, s, want...)
	s = sv.killed(second).open(nodeapi.StreamConfig{})
	put(t, two, "/a/y", "2")
	expect(t, s, append(want, "put /a/y=2")...)
}

// TestTooLarge checks an event that does not fit into a record. It must be reported without its
// value or as missed, and the stream must continue.
func TestTooLarge(t *testing.T) {
	endpoint := etcdtest.Start(t)
	c := etcdtest.Client(t, endpoint)
	sv := serve(t, "", endpoint)
	s := sv.open(nodeapi.StreamConfig{ObjectBytes: 1024, Objects: 64})
	expect(t, s, "state", "synced")
	put(t, c, "/a/large", strings.Repeat("x", 1<<20))
	put(t, c, "/a/"+strings.Repeat("k", 2000), "x")
	put(t, c, "/a/\xff", "\xfe")
	put(t, c, "/a/small", "x")
	want := []string{"state", "synced", "put /a/large", "missed", "put", "put /a/small=x"}
	expect(t, s, want...)
	all := told(t, s, 0)
	if e := all[2]; e.ValueBytes != 1<<20 {
		t.Errorf("%+v", e)
	}
	if e := all[4]; string(e.KeyBase64) != "/a/\xff" || string(e.ValueBase64) != "\xfe" {
		t.Errorf("%+v", e)
	}
}

// meter forwards connections to an etcd, and counts the bytes from the etcd. It accepts connections
// only after the channel from is closed.
func meter(t *testing.T, to string, from <-chan struct{}) (address string, passed *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	passed = new(atomic.Int64)
	go func() {
		<-from
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go func() { _, _ = io.Copy(out, in); out.Close() }()
			go func() {
				b := make([]byte, 64<<10)
				for {
					n, err := out.Read(b)
					passed.Add(int64(n))
					if _, err2 := in.Write(b[:n]); err != nil || err2 != nil {
						in.Close()
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), passed
}

// TestSlowConsumer checks that while the source waits for a consumer, further events stay in etcd.
// The source must not buffer them.
func TestSlowConsumer(t *testing.T) {
	endpoint := etcdtest.Start(t)
	etcd := etcdtest.Client(t, endpoint)
	now := make(chan struct{})
	close(now)
	address, passed := meter(t, endpoint, now)
	s := serve(t, "", address).open(nodeapi.StreamConfig{ObjectBytes: 1 << 20, Objects: 4, StallMillis: 3_600_000})
	expect(t, s, "state", "synced")
	u, err := s.Subscribe(&nodeapi.SubscribeData{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	const each, many = 900_000, 30
	value := strings.Repeat("x", each)
	for range many {
		put(t, etcd, "/a/x", value)
	}
	poll.Until(t, long, "the ring to be full", func() bool { return s.State()[0].Next == 2+4 })
	last := int64(-1)
	poll.Until(t, long, "nothing more to come", func() bool {
		now := passed.Load()
		same := now == last
		last = now
		time.Sleep(300 * time.Millisecond)
		return same
	})
	t.Logf("%d bytes of %d came while nobody took them", last, each*many)
	if last > each*many/2 {
		t.Error("what nobody takes is gathered here")
	}
	u.Close()
	poll.Until(t, long, "the rest", func() bool { return s.State()[0].Next == 2+many })
}

// TestRules checks that a program can read only the prefixes that the operator allows.
func TestRules(t *testing.T) {
	path := filepath.Join(t.TempDir(), "etcd.yaml")
	write := func(text string, mode os.FileMode) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ text, want string }{
		{"endpoints: []", "no endpoints"},
		{"endpoints: [127.0.0.1:1]\nprefixes: {shop: ['']}", "all keys"},
		{"endpoints: [127.0.0.1:1]\nprefixes: {Shop_: [/a/]}", "prefixes"},
		{"endpoints: [127.0.0.1:1]\nprefix: {shop: [/a/]}", "not found"},
		{"endpoints: [127.0.0.1:1]\ncert: x", "a certificate and its key"},
	} {
		write(c.text, 0o600)
		if _, _, err := Open(path); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
	good := "endpoints: [127.0.0.1:1]\nprefixes: {shop: [/prices/, /stock/], '*': [/holidays/]}"
	write(good, 0o622)
	if _, _, err := Open(path); err == nil {
		t.Error("anybody may write the operator's file")
	}
	write(good, 0o600)
	o, end, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	for _, c := range []struct {
		namespace, prefix string
		may               bool
	}{
		{"shop", "/prices/", true}, {"shop", "/prices/eu/", true}, {"shop", "/stock/", true}, {"shop", "/holidays/", true},
		{"other", "/holidays/2026", true},
		{"shop", "", false}, {"shop", "/", false}, {"shop", "/prices", false}, {"shop", "/price", false},
		{"other", "/prices/", false}, {"*", "/prices/", false}, {"shop", "/registry/secrets/", false},
		{"shop", "/prices/../registry/", true}, // for etcd this is an ordinary name of a key, without special meaning
	} {
		_, err := o.Make(c.namespace, nodeapi.StreamSource{Etcd: &nodeapi.EtcdSource{Prefix: c.prefix}})
		if (err == nil) != c.may || err != nil && !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodePermissionDenied}) {
			t.Errorf("%s, %q: %v", c.namespace, c.prefix, err)
		}
	}
}

// TestEarlyProgress checks that no event is lost with etcd versions that report progress before
// earlier events. Such versions must not be asked for progress.
func TestEarlyProgress(t *testing.T) {
	for version, asked := range map[string]bool{"3.4.23": false, "3.5.7": false, "3.5.8": true} {
		t.Run(version, func(t *testing.T) {
			early := etcdtest.NewEarlyProgress(version)
			cluster := etcdtest.New(t, 1, etcdtest.Options{Adjust: early.Adjust})
			etcd := etcdtest.Client(t, cluster.Endpoints()...)
			sv := serve(t, "", cluster.Endpoints()...)
			sv.origin.progressEvery = 20 * time.Millisecond
			s := sv.open(nodeapi.StreamConfig{})
			expect(t, s, "state", "synced")
			if asked { // this version reports progress in order, so it may be asked
				poll.Until(t, long, "etcd is asked for progress", func() bool { return early.Requests.Load() > 0 })
				return
			}
			early.Revision.Store(put(t, etcd, "/a/x", "1"))
			time.Sleep(10 * sv.origin.progressEvery)
			if n := early.Requests.Load(); n > 0 {
				t.Errorf("etcd was asked for progress %d times", n)
			}
			close(early.Release)
			expect(t, s, "state", "synced", "put /a/x=1")
		})
	}
}
