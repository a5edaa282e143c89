package jetstream

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	js "github.com/nats-io/nats.go/jetstream"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/server"
	"github.com/netcraq/netcraq/nodeapi/store"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

// mayNot is an authority that denies one verb to all callers, if a verb is set.
type mayNot struct {
	authority.Files
	verb atomic.Int64
}

func (m *mayNot) Authorize(_ context.Context, _ authority.Caller, v authority.Verb, _ string) error {
	if m.verb.Load() == int64(v)+1 {
		return nodeapi.Errorf(nodeapi.CodePermissionDenied, "", "not this")
	}
	return nil
}

// api1 starts a node's server in this process, and returns a client of the server.
func api1(t *testing.T, config string, rights *mayNot, urls ...string) (*origin, *node.Client) {
	t.Helper()
	o, err := opened(config, slog.New(slog.DiscardHandler), urls...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.close)
	socket := filepath.Join(t.TempDir(), "s")
	l, err := server.Listen("unix://"+socket, server.Access{Mode: 0o600, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	s := server.New(server.Config{Store: store.NewMemory(1024), Name: "test", Node: "here", Namespace: "shop",
		Log: slog.New(slog.DiscardHandler), Authority: rights,
		Sources: map[string]source.Maker{"jetstream": o.Make}, Streams: &broker.Options{}})
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
	return o, connect(t, socket)
}

// appending returns the data of an append of one record by a program of a namespace.
func appending(namespace, subject, text, id string) nodeapi.AppendData {
	return nodeapi.AppendData{StreamData: nodeapi.StreamData{Namespace: namespace, Stream: "s"},
		Records: []nodeapi.RecordData{{Value: &text, Subject: subject, ID: id}}}
}

// made opens the stream "s" in each namespace.
func made(t *testing.T, c *node.Client, namespaces ...string) {
	t.Helper()
	for _, ns := range namespaces {
		if _, err := c.OpenStream(soon(t), "s", config(1), node.In(ns)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKeep checks that JetStream stores records that programs append through the node API, once for
// each ID of a namespace. Afterwards the records must come into the stream. Programs must not be
// able to append to forbidden subjects, or to send commands to NATS.
func TestKeep(t *testing.T) {
	conf, _ := operator(t)
	rights := mayNot{Files: authority.Files{Own: "shop"}}
	o, c := api1(t, conf, &rights)
	made(t, c, "shop", "third")
	d := appending("shop", "orders.a", "one", "1")
	two := "two"
	d.Records = append(d.Records, nodeapi.RecordData{Value: &two, Subject: "orders.b", ID: "2"})
	poll.Until(t, long, "JetStream", func() bool { return o.conn.Load() != nil })
	for range 2 { // in the second round the records already exist
		a, err := c.Append(soon(t), d)
		if err != nil || a.Appended != 2 || fmt.Sprint(a.Sequences) != "[1 2]" {
			t.Fatalf("%+v, %v", a, err)
		}
	}
	if a, err := c.Append(soon(t), appending("third", "orders.third.x", "three", "1")); err != nil || a.Sequences[0] != 3 {
		t.Errorf("the id of another namespace: %+v, %v", a, err)
	}
	at := uint64(0)
	for i, c1 := range []struct {
		d    nodeapi.AppendData
		code nodeapi.Code
	}{
		{appending("shop", "", "x", ""), nodeapi.CodeInvalidArgument},
		{appending("shop", "orders.*", "x", ""), nodeapi.CodeInvalidArgument},
		{appending("shop", "orders.a b", "x", ""), nodeapi.CodeInvalidArgument},
		{appending("shop", "orders.a\r\nx", "x", ""), nodeapi.CodeInvalidArgument},
		{appending("shop", "orders.a", "x", "7\r\nNats-Rollup: all"), nodeapi.CodeInvalidArgument},
		{appending("shop", "orders.a", "x", strings.Repeat("x", maxID+1)), nodeapi.CodeInvalidArgument},
		{appending("shop", "$JS.API.STREAM.DELETE.ORDERS", "", ""), nodeapi.CodePermissionDenied},
		{appending("shop", "secrets.x", "x", ""), nodeapi.CodePermissionDenied},
		{appending("third", "orders.a", "x", ""), nodeapi.CodePermissionDenied},
		{appending("shop", "orders.a", strings.Repeat("x", 1000), ""), nodeapi.CodeTooLarge},
		{func() nodeapi.AppendData { d := d; d.Partition = 1; return d }(), nodeapi.CodeInvalidArgument},
		{func() nodeapi.AppendData { d := d; d.At = &at; return d }(), nodeapi.CodeInvalidArgument},
	} {
		if a, err := c.Append(soon(t), c1.d); !errors.Is(err, &nodeapi.Error{Code: c1.code}) {
			t.Errorf("%d: %+v, %v", i, a, err)
		}
	}
	rights.verb.Store(int64(authority.Write) + 1)
	if _, err := c.Append(soon(t), d); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodePermissionDenied}) {
		t.Errorf("without the right to write: %v", err)
	}
	rights.verb.Store(0)
	info, err := o.conn.Load().js.Stream(soon(t), "ORDERS")
	if err != nil || info.CachedInfo().State.Msgs != 3 {
		t.Fatal(info, err)
	}
	var got []string
	poll.Until(t, long, "the records in the stream", func() bool {
		b, err := c.Read(soon(t), nodeapi.ReadData{StreamData: d.StreamData, From: nodeapi.FromEarliest})
		if err != nil {
			t.Fatal(err)
		}
		got = nil
		for _, r := range b.Records {
			got = append(got, fmt.Sprint(r.Mark, " ", *r.Value))
		}
		return len(got) >= 3
	})
	if fmt.Sprint(got) != "[1 one 2 two 3 three]" {
		t.Errorf("%q", got)
	}
}

// TestKeepOneSubject checks a source with a single subject. A record must be stored under that
// subject. Keep must refuse a record that would not come into the stream, and a record for which
// JetStream has no room. Earlier records must be stored.
func TestKeepOneSubject(t *testing.T) {
	path, url, begins := cluster(t, "{namespaces: {shop: [FULL]}, append: {'*': [one.>, other]}}")
	begins()
	o, c := api1(t, path, &mayNot{Files: authority.Files{Own: "shop"}}, url)
	poll.Until(t, long, "JetStream", func() bool { return o.conn.Load() != nil })
	if _, err := o.conn.Load().js.CreateStream(soon(t), js.StreamConfig{Name: "FULL", Subjects: []string{"one.>"},
		MaxMsgs: 3, Discard: js.DiscardNew}); err != nil {
		t.Fatal(err)
	}
	cfg := config(1)
	cfg.Source.JetStream = &nodeapi.JetStreamSource{Stream: "FULL", Subject: "one.two"}
	if _, err := c.OpenStream(soon(t), "s", cfg); err != nil {
		t.Fatal(err)
	}
	d := appending("shop", "", "a", "")
	d.Records = append(d.Records, d.Records[0])
	if a, err := c.Append(soon(t), d); err != nil || a.Appended != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := c.Append(soon(t), d); err != nil || a.Appended != 1 || fmt.Sprint(a.Sequences) != "[3]" {
		t.Errorf("where there is room for one: %+v, %v", a, err)
	}
	if _, err := c.Append(soon(t), d); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeQuotaExceeded}) {
		t.Errorf("where there is no room: %v", err)
	}
	for _, subject := range []string{"one.three", "other"} {
		_, err := c.Append(soon(t), appending("shop", subject, "a", ""))
		if !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeInvalidArgument}) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	cfg.Source.JetStream.Subject = ""
	if err := c.DeleteStream(soon(t), "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.OpenStream(soon(t), "s", cfg); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Append(soon(t), appending("shop", "other", "a", "")); !errors.Is(err, &nodeapi.Error{Code: nodeapi.CodeUnavailable}) {
		t.Errorf("a subject of no stream: %v", err)
	}
}

// TestKeepAway checks that appends fail while JetStream is unavailable. If a producer retries with
// the same ID, each record must be stored once, in order, however often JetStream stops and
// returns.
func TestKeepAway(t *testing.T) {
	path, url, begins := cluster(t, "{namespaces: {shop: [ORDERS]}, append: {shop: [orders.>]}}")
	ends := begins()
	o, c := api1(t, path, &mayNot{Files: authority.Files{Own: "shop"}}, url)
	poll.Until(t, long, "JetStream", func() bool { return o.conn.Load() != nil })
	if _, err := o.conn.Load().js.CreateStream(soon(t), js.StreamConfig{Name: "ORDERS", Subjects: []string{"orders.>"}}); err != nil {
		t.Fatal(err)
	}
	made(t, c, "shop")
	var kept, failed atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for n := 0; ctx.Err() == nil; n++ {
			for {
				short, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				_, err := c.Append(short, appending("shop", "orders.x", fmt.Sprint(n), fmt.Sprint(n)))
				cancel()
				if err == nil {
					kept.Add(1)
					break
				}
				failed.Add(1)
				var e *nodeapi.Error
				again := []nodeapi.Code{nodeapi.CodeUnavailable, nodeapi.CodeOutcomeUnknown, nodeapi.CodeTimeout}
				if !errors.As(err, &e) || !slices.Contains(again, e.Code) {
					done <- err
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
		}
		done <- nil
	}()
	for range 3 {
		before := kept.Load()
		poll.Until(t, long, "records to be kept", func() bool { return kept.Load() > before+20 || len(done) > 0 })
		before = failed.Load()
		ends()
		poll.Until(t, long, "appends to be refused", func() bool { return failed.Load() > before+2 || len(done) > 0 })
		ends = begins()
	}
	before := kept.Load()
	poll.Until(t, long, "records to be kept again", func() bool { return kept.Load() > before || len(done) > 0 })
	stop()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	s, err := o.conn.Load().js.Stream(soon(t), "ORDERS")
	if err != nil || s.CachedInfo().State.Msgs != uint64(kept.Load()) {
		t.Fatalf("%d were kept: %+v, %v", kept.Load(), s.CachedInfo().State, err)
	}
	for n := range kept.Load() {
		m, err := s.GetMsg(soon(t), uint64(n)+1)
		if err != nil || string(m.Data) != fmt.Sprint(n) {
			t.Fatalf("message %d is %+v, %v", n+1, m, err)
		}
	}
	t.Logf("%d were kept, %d appends refused", kept.Load(), failed.Load())
}
