package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	js "github.com/nats-io/nats.go/jetstream"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

// TestCrashes kills the server with JetStream and the consumer at random, while a producer
// publishes numbered records. The consumer must get each record that JetStream has acknowledged,
// once, with one offset, in order. The producer either is a client of NATS, or appends through the
// node API. $NETCRAQ_JETSTREAM_CRASHES is the duration for each kind of producer; the default is
// 3s.
func TestCrashes(t *testing.T) {
	t.Run("NATS", func(t *testing.T) {
		crashes(t, func(_, listen string) func(context.Context, int) error {
			_, j := producer(t, listen)
			return func(ctx context.Context, n int) error {
				_, err := j.Publish(ctx, subjectOf(n), textOf(n), js.WithMsgID(fmt.Sprint(n)))
				return err
			}
		})
	})
	t.Run("node API", func(t *testing.T) {
		crashes(t, func(socket, _ string) func(context.Context, int) error {
			c := connect(t, socket)
			return func(ctx context.Context, n int) error {
				a, err := c.Append(ctx, appending("shop", subjectOf(n), string(textOf(n)), fmt.Sprint(n)))
				if err == nil && a.Appended != 1 {
					err = fmt.Errorf("%+v", a)
				}
				return err
			}
		})
	})
}

func subjectOf(n int) string { return fmt.Sprintf("orders.%d", n%3) }

func textOf(n int) []byte { return fmt.Appendf(nil, "record %d", n) }

// crashes runs the test with the producer that the function `made` returns. The arguments of `made`
// are the addresses of the server's socket and of JetStream's listener.
func crashes(t *testing.T, made func(socket, listen string) func(ctx context.Context, n int) error) {
	lasts := 3 * time.Second
	if text := os.Getenv("NETCRAQ_JETSTREAM_CRASHES"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	conf, listen := operator(t)
	dir := t.TempDir()
	socket, out := filepath.Join(dir, "s"), filepath.Join(dir, "out")
	all := []*process{{t: t, role: "server", args: []string{dir, conf}}, {t: t, role: "consumer", args: []string{socket, out}}}
	all[0].start()
	if _, err := connect(t, socket).OpenStream(soon(t), "s", config(1)); err != nil {
		t.Fatal(err)
	}
	all[1].start()
	defer func() {
		for _, p := range all {
			_ = p.cmd.Process.Kill()
			p.in.Close()
		}
	}()
	// from then on, no record is dropped before the consumer has it
	poll.Until(t, long, "the consumer to be known", func() bool {
		text, _ := os.ReadFile(filepath.Join(dir, "streams", "shop", "s", "positions.json"))
		return strings.Contains(string(text), "me")
	})
	publishes := made(socket, listen)
	ctx, stop := context.WithCancel(t.Context())
	published := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			// The ID in the message lets JetStream recognize a record that it already has.
			for t.Context().Err() == nil {
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				err := publishes(short, n)
				cancel()
				if err == nil {
					break
				}
			}
			n++
		}
		published <- n
	}()
	kills := 0
	for end := time.Now().Add(lasts); time.Now().Before(end); kills++ {
		time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond)
		p := all[rand.IntN(2)]
		p.kill()
		p.start()
	}
	stop()
	want := <-published
	var lines []string
	poll.Until(t, long, "the consumer to have read all", func() bool {
		text, _ := os.ReadFile(out)
		lines = strings.Split(strings.TrimSpace(string(text)), "\n")
		return len(lines) >= want
	}, func() string { return fmt.Sprintf("%d of %d", len(lines), want) })
	if len(lines) != want {
		t.Errorf("%d records were read of %d", len(lines), want)
	}
	for i, l := range lines {
		if l != fmt.Sprintf("%d record %d", i, i) {
			t.Fatalf("line %d is %q", i, l)
		}
	}
	t.Logf("%d records, %d kills", want, kills)
}

func publish(t *testing.T, j js.JetStream, subject, text string) {
	t.Helper()
	poll.Nil(t, long, "JetStream to take a message", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := j.Publish(ctx, subject, []byte(text), js.WithMsgID(subject+text))
		return err
	})
}

func open1(t *testing.T, b *broker.Broker, c *nodeapi.StreamConfig) *broker.Stream {
	t.Helper()
	s, _, err := b.Open(soon(t), "shop", "s", c, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// records returns the records of a partition. It waits until there are at least the given number of
// records.
func records(t *testing.T, s *broker.Stream, partition int, many uint64) (out []string) {
	t.Helper()
	poll.Until(t, long, "records", func() bool { return s.State()[partition].Next >= many })
	b, err := s.Read(soon(t), &nodeapi.ReadData{Partition: partition, From: nodeapi.FromEarliest}, 1000,
		func(stream.Record) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range b.Records {
		out = append(out, fmt.Sprint(r.Mark, " ", string(r.Data)))
	}
	return out
}

// TestMessages checks that all messages of a subject are in the same partition. Messages that do
// not fit into a record must be left out, and later messages must follow. A JetStream stream that
// was deleted and created again must be read from its beginning.
func TestMessages(t *testing.T) {
	conf, listen := operator(t)
	o, b := begin(t, conf, "")
	_, j := producer(t, listen)
	s := open1(t, b, config(2))
	want := make([][]string, 2)
	for i := range 20 {
		subject := fmt.Sprintf("orders.%d", i%5)
		text := fmt.Sprint(i)
		if i == 7 {
			text = strings.Repeat("x", 1000) // this message is too large for an object of 1,024 bytes
		} else {
			p := source.Partition(subject, 2)
			want[p] = append(want[p], fmt.Sprint(i+1, " ", text))
		}
		publish(t, j, subject, text)
	}
	for p := range want {
		if got := records(t, s, p, uint64(len(want[p]))); fmt.Sprint(got) != fmt.Sprint(want[p]) {
			t.Errorf("partition %d: %q, not %q", p, got, want[p])
		}
	}
	all := o.conn.Load().js
	if err := all.DeleteStream(soon(t), "ORDERS"); err != nil {
		t.Fatal(err)
	}
	if _, err := all.CreateStream(soon(t), js.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, j, "orders.0", "anew")
	p := source.Partition("orders.0", 2)
	if got := records(t, s, p, uint64(len(want[p]))+1); got[len(got)-1] != "1 anew" {
		t.Errorf("%q", got)
	}
}

// TestSlow checks that JetStream keeps new messages while the source waits for a consumer, and that
// no message is lost.
func TestSlow(t *testing.T) {
	conf, listen := operator(t)
	_, b := begin(t, conf, "")
	_, j := producer(t, listen)
	s := open1(t, b, config(1))
	u, err := s.Subscribe(&nodeapi.SubscribeData{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	const many = 1000
	for i := range many {
		publish(t, j, "orders.x", fmt.Sprintf("%d %s", i, strings.Repeat("x", 400)))
	}
	poll.Until(t, long, "the ring to be full", func() bool { return s.State()[0].Next == 32 })
	u.Close()
	got := records(t, s, 0, many)
	if last := got[len(got)-1]; !strings.HasPrefix(last, fmt.Sprintf("%d %d ", many, many-1)) || s.State()[0].Next != many {
		t.Errorf("%.20q, of %d", last, s.State()[0].Next)
	}
}

// TestRights checks that producers can only publish, and that other users cannot connect. Programs
// must get only the streams that their namespace may use.
func TestRights(t *testing.T) {
	conf, listen := operator(t)
	o, b := begin(t, conf, "")
	nc, j := producer(t, listen)
	publish(t, j, "orders.x", "1")
	if nc, err := nats.Connect("nats://" + listen); err == nil {
		nc.Close()
		t.Error("somebody without a name may connect")
	}
	if nc, err := nats.Connect("nats://"+listen, nats.UserInfo(own, "")); err == nil {
		nc.Close()
		t.Error("somebody may connect as this process")
	}
	short := func() context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	if _, err := j.Publish(short(), "secrets.x", []byte("forged")); err == nil {
		t.Error("it may publish what others may")
	}
	if err := j.DeleteStream(short(), "ORDERS"); err == nil {
		t.Error("it may delete a stream")
	}
	if _, err := j.Stream(short(), "SECRETS"); err == nil {
		t.Error("it may look at streams")
	}
	heard, err := nc.SubscribeSync("_NETCRAQ.>")
	if err == nil {
		_, err = o.conn.Load().js.Publish(soon(t), "secrets.y", []byte("x"))
		if _, e := heard.NextMsgWithContext(short()); err != nil || e == nil {
			t.Error("it hears what this process is sent", err)
		}
	}
	info, err := o.conn.Load().js.Stream(soon(t), "SECRETS")
	if err != nil || info.CachedInfo().State.Msgs != 1 {
		t.Error(info.CachedInfo().State.Msgs, err)
	}
	for i, c := range []struct {
		namespace, stream string
		may               bool
	}{{"shop", "ORDERS", true}, {"shop", "SECRETS", false}, {"other", "ORDERS", false}, {"shop", "", false}} {
		d := config(1)
		d.Source.JetStream.Stream = c.stream
		_, _, err := b.Open(soon(t), c.namespace, fmt.Sprintf("s%d", i), d, nil)
		if (err == nil) != c.may || err != nil && !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodePermissionDenied}) {
			t.Errorf("%s, %s: %v", c.namespace, c.stream, err)
		}
	}
}

// cluster prepares an operator's NATS server, and writes the operator's file. The function begins
// starts the server, and returns a function that stops it.
func cluster(t *testing.T, text string) (path, url string, begins func() (ends func())) {
	t.Helper()
	host, port, err := net.SplitHostPort(testport.Free(t))
	if err != nil {
		t.Fatal(err)
	}
	number, _ := strconv.Atoi(port)
	dir := t.TempDir()
	path = filepath.Join(dir, "jetstream.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path, "nats://" + net.JoinHostPort(host, port), func() func() {
		s, err := server.NewServer(&server.Options{Host: host, Port: number, JetStream: true, StoreDir: dir,
			NoSigs: true, NoLog: true})
		if err != nil {
			t.Fatal(err)
		}
		s.Start()
		if !s.ReadyForConnections(long) {
			t.Fatal("it does not begin")
		}
		end := sync.OnceFunc(func() {
			s.Shutdown()
			s.WaitForShutdown()
		})
		t.Cleanup(end)
		return end
	}
}

// TestCluster checks that a cluster of the operator works like the server in this process. The
// cluster may stop and return.
func TestCluster(t *testing.T) {
	path, url, begins := cluster(t, "{namespaces: {shop: [ORDERS]}}")
	_, b := begin(t, path, "", url) // the cluster is not running yet
	s := open1(t, b, config(1))
	first := begins()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	j, err := js.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.CreateStream(soon(t), js.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	publish(t, j, "orders.x", "one")
	records(t, s, 0, 1)
	first()
	begins()
	publish(t, j, "orders.x", "two")
	if got := records(t, s, 0, 2); fmt.Sprint(got) != "[1 one 2 two]" {
		t.Errorf("%q", got)
	}
}

// TestFile checks that errors in an operator's file are reported.
func TestFile(t *testing.T) {
	dir := t.TempDir()
	password, path := filepath.Join(dir, "password"), filepath.Join(dir, "f")
	if err := os.WriteFile(password, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	nats := "listen: " + testport.Free(t)
	for _, c := range []struct {
		text, want string
		mode       os.FileMode
		cluster    bool
	}{
		{"namespaces: {}", "give dir", 0o600, false},
		{"dir: /x\nport: 1", "not found", 0o600, false},
		{"dir: /x", "may do too much", 0o622, false},
		{"dir: /x\n" + nats, "listen and producers", 0o600, false},
		{"dir: /x\n" + nats + "\nproducers: {a: {passwordFile: " + password + ", publish: [x]}}", "may do too much", 0o600, false},
		{"dir: /x\n" + nats + "\nproducers: {a: {passwordFile: " + password + "}}", "subjects that it may publish", 0o600, false},
		{"dir: /x\nstreams: {X: {}}", "no subjects", 0o600, false},
		{"dir: /x\nnamespaces: {Shop_: [X]}", "namespaces", 0o600, false},
		{"dir: /x\nappend: {shop: [a..b]}", "no subject", 0o600, false},
		{"dir: /x\nappend: {Shop_: [a]}", "append", 0o600, false},
		{"dir: /x\ncreds: x", "of a cluster", 0o600, false},
		{"dir: /x", "not of a cluster", 0o600, true},
	} {
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		f, err := read(path)
		if err == nil {
			err = f.check(c.cluster)
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}
