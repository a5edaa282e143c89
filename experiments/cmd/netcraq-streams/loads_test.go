package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/internal/streamload"
	"github.com/netcraq/netcraq/internal/testutil/loadtest"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// serving starts the broker, and returns its address.
func serving(t *testing.T) string {
	socket := filepath.Join(t.TempDir(), "s")
	ctx, stop := context.WithCancel(t.Context())
	said, out := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- serve(ctx, socket, "", out) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if text, err := bufio.NewReader(said).ReadString('\n'); text != "ready\n" {
		t.Fatalf("%q, %v", text, err)
	}
	return socket
}

// TestLoads: consumers get all records that a producer appends. The test covers each way of
// reading, and each kind of work.
func TestLoads(t *testing.T) {
	socket := serving(t)
	c, err := node.Connect(t.Context(), node.Config{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	for _, way := range []string{"push", "pull", "compact"} {
		for _, work := range []string{"count", "filter", "words", "windows"} {
			t.Run(way+" "+work, func(t *testing.T) {
				stream := way + "-" + work
				if _, err := c.OpenStream(t.Context(), stream, &nodeapi.StreamConfig{Partitions: 2}); err != nil {
					t.Fatal(err)
				}
				defer func() {
					if err := c.DeleteStream(t.Context(), stream); err != nil {
						t.Error(err)
					}
				}()
				reads := consumer{socket: socket, stream: stream, name: "c", partitions: []int{0, 1}, way: way, work: work,
					batch: 16 << 10}
				r := loadtest.Start(t, reads.run)
				writes := producer{socket: socket, stream: stream, partitions: []int{0, 1}, chunk: 4096, record: 100}
				p := loadtest.Start(t, writes.run)
				r.Say()
				p.Say()
				var m streamload.Mark
				poll.Until(t, loadtest.Patience, "records to be read", func() bool {
					m = r.Mark()
					return m.Records >= 500 && m.Found > 0
				})
				p.End()
				if m.At <= 0 || m.CPU <= 0 || m.Missed != 0 || m.Bytes != 100*m.Records {
					t.Errorf("%+v", m)
				}
				appended := writes.Mark().Records
				poll.Until(t, loadtest.Patience, "all to be read", func() bool { return r.Mark().Records >= appended })
				r.End()
			})
		}
	}
}

// TestFollow: a follower is notified of each write, by the stream, by the node API's watch and by
// etcd's watch.
func TestFollow(t *testing.T) {
	f := follower{writer: serving(t), etcd: map[string]string{"etcd": etcdtest.Start(t)}, writes: 20}
	f.reader = f.writer
	var out bytes.Buffer
	if err := f.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	var report map[string]followed
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	for _, way := range []string{"push", "watch", "etcd"} {
		r := report[way]
		if r.Writes != 20 || r.Answered.P50 <= 0 || r.Told.P50 <= 0 || r.Told.P99 < r.Told.P50 ||
			r.After.P99 < r.After.P50 {
			t.Errorf("%s: %+v", way, r)
		}
	}
}
