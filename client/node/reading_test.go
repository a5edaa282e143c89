package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/internal/await"
)

// reads reports whether a goroutine reads the client's connection.
func reads(c *Client) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn != nil && c.conn.taken
}

// A single caller reads for itself. When no one has read for a while, a background goroutine reads.
func TestWhoReads(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		p.answer(r.ID, item("k", "v", "1.1"))
		return true
	}
	c := f.start().connect(Config{})
	alone := 0
	for range 200 {
		before := reads(c)
		if _, err := c.Get(soon(t), "k"); err != nil {
			t.Fatal(err)
		}
		if !before {
			alone++
		}
	}
	if alone == 0 {
		t.Error("a goroutine read for each of 200 calls")
	}
	await.Until(t, patience, "a goroutine that reads while nobody calls", func() bool { return reads(c) })
}

// If a caller stops waiting while it reads, another goroutine reads the answers of other calls and
// of watches.
func TestReaderGivesUp(t *testing.T) {
	for _, how := range []string{"canceled", "its deadline", "the client's time"} {
		t.Run(how, func(t *testing.T) {
			f := newFake(t)
			f.hook = func(p *peer, r nodeapi.Request) bool {
				if r.Func == nodeapi.FuncGet && keyOf(r) == "other" {
					f.done.Go(func() {
						for f.count(nodeapi.FuncCancel) == 0 && t.Context().Err() == nil {
							time.Sleep(time.Millisecond)
						}
						p.answer(r.ID, item("other", "v", "1.1"))
					})
				}
				return r.Func == nodeapi.FuncGet
			}
			cfg := Config{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			switch how {
			case "its deadline":
				ctx, cancel = context.WithTimeout(ctx, 100*time.Millisecond)
				defer cancel()
			case "the client's time":
				cfg.Timeout = 100 * time.Millisecond
				ctx = context.Background()
			}
			c := f.start().connect(cfg)
			// A background goroutine reads the first answers, and then stops.
			await.Until(t, patience, "nobody to read", func() bool {
				_, _ = c.Leader(soon(t), "x")
				return !reads(c)
			})
			var wg sync.WaitGroup
			wg.Go(func() {
				if _, err := c.Get(ctx, "never"); err == nil {
					t.Error("there was an answer")
				}
			})
			await.Until(t, patience, "the first to read", func() bool { return f.count(nodeapi.FuncGet) == 1 })
			wg.Go(func() {
				if i, err := c.Get(soon(t), "other"); err != nil || string(i.Value) != "v" {
					t.Error(i, err)
				}
			})
			await.Until(t, patience, "the second to wait", func() bool { return f.count(nodeapi.FuncGet) == 2 })
			if how == "canceled" {
				cancel()
			}
			wg.Wait()
			if f.conns() != 1 {
				t.Errorf("%d connections", f.conns())
			}
		})
	}
}

// If a connection ends while a caller reads it, the client connects again and repeats the call.
func TestReaderMeetsTheEnd(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if p.number < 3 && r.Func == nodeapi.FuncGet {
			_ = p.Close()
			return true
		}
		p.answer(r.ID, item("k", "v", "1.1"))
		return true
	}
	c := f.start().connect(Config{})
	for range 5 {
		for range 3 { // After several calls, a caller reads the connection itself.
			if _, err := c.Leader(soon(t), "x"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := c.Get(soon(t), "k"); err != nil {
			t.Fatal(err)
		}
	}
	if f.conns() != 4 {
		t.Errorf("%d connections", f.conns())
	}
}

// While no call is under way the client still notices that the server announces its shutdown, and
// that the connection has ended.
func TestHeardWhileNobodyCalls(t *testing.T) {
	f := newFake(t)
	c := f.start().connect(Config{})
	for range 3 {
		if _, err := c.Leader(soon(t), "x"); err != nil {
			t.Fatal(err)
		}
	}
	f.peer(0).say(`{"id":0,"data":{"draining":true}}`)
	await.Until(t, patience, "another connection", func() bool { return f.conns() == 2 })
	for range 3 {
		if _, err := c.Leader(soon(t), "x"); err != nil {
			t.Fatal(err)
		}
	}
	_ = f.peer(1).Close()
	await.Until(t, patience, "one more", func() bool { return f.conns() == 3 })
}
