package server

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// TestSuccession checks that no call fails while a server is replaced repeatedly, over a long-lived
// connection or new connections. The socket's file must exist all the time, and must be removed
// with the last server.
func TestSuccession(t *testing.T) {
	st := store.NewMemory(100)
	dir := t.TempDir()
	path, offer := filepath.Join(dir, "node.sock"), filepath.Join(dir, "successor.sock")
	l, err := Listen("unix://"+path, Access{Mode: 0o600, GID: -1})
	if err != nil {
		t.Fatal(err)
	}
	var servers sync.WaitGroup
	run := func(name string, l net.Listener) *Server {
		s := New(Config{Store: st, Name: name, Namespace: "default"})
		servers.Go(func() { _ = s.Serve(l) })
		return s
	}
	hand := func(s *Server, name string) {
		servers.Go(func() {
			if s.Offer(offer) == nil {
				ctx, cancel := context.WithTimeout(context.Background(), soon)
				defer cancel()
				if err := s.Shutdown(ctx); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	s := run("0", l)
	hand(s, "0")

	var stop atomic.Bool
	var calls atomic.Int64
	var clients sync.WaitGroup
	for range 3 {
		clients.Go(func() { // this client makes a new connection for each call
			for !stop.Load() {
				c := dial(t, path)
				c.send(`{"id":1,"func":"increment","data":{"key":"n"}}`)
				if !strings.Contains(c.receive(), `"number"`) {
					t.Error("a call failed")
				}
				c.Close()
				calls.Add(1)
			}
		})
		clients.Go(func() { // this client keeps its connection until the server tells it to reconnect
			for !stop.Load() {
				c := dial(t, path)
				c.send(`{"id":1,"func":"hello","data":{"drainNotice":true}}`)
				leave := strings.Contains(c.receive(), `"draining":true`)
				for !stop.Load() && !leave {
					c.send(`{"id":2,"func":"increment","data":{"key":"n"}}`)
					text := c.receive()
					if leave = strings.Contains(text, `"id":0`); leave {
						text = c.receive()
					}
					if !strings.Contains(text, `"number"`) {
						t.Errorf("a call failed: %s", text)
					}
					calls.Add(1)
				}
				c.Close()
			}
		})
	}
	for i := range 5 {
		before := calls.Load()
		poll.Until(t, soon, "calls", func() bool { return calls.Load() > before+20 })
		var next *Succession
		poll.Nil(t, soon, "the sockets are handed on", func() (err error) { next, err = TakeOver(offer); return err })
		address := "unix://" + path
		if next.Listeners[address] == nil {
			t.Fatal(next.Listeners)
		}
		if i == 2 { // a successor that dies must change nothing
			next.Listeners[address].(*socketFile).UnixListener.Close()
			next.nc.Close()
			continue
		}
		name := string(rune('1' + i))
		s = run(name, next.Listeners[address])
		if err := next.Taken(); err != nil {
			t.Fatal(err)
		}
		hand(s, name)
	}
	before := calls.Load()
	poll.Until(t, soon, "calls by the last one", func() bool { return calls.Load() > before+20 })
	stop.Store(true)
	clients.Wait()
	s.Close()
	servers.Wait()
	i, err := st.Get(t.Context(), store.Key{Namespace: "default", Name: "n"}, false)
	if err != nil || i.Version.Sequence() != uint64(calls.Load()) {
		t.Errorf("%d calls were answered, %v were done, %v", calls.Load(), i.Version, err)
	}
	for _, p := range []string{path, offer} {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

// TestListen checks that the socket's file has the right permissions. It must replace the file of a
// dead server, and no other file.
func TestListen(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "deep", "node.sock")
	a := Access{Mode: 0o640, GID: os.Getgid()}
	l, err := Listen("unix://"+path, a)
	if err != nil {
		t.Fatal(err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o640 {
		t.Error(info.Mode())
	}
	if _, err := Listen("unix://"+path, a); err == nil || !strings.Contains(err.Error(), "a server that lives") {
		t.Error(err)
	}
	l.(*socketFile).UnixListener.Close() // close only the socket, as if the process had died
	if l, err = Listen("unix://"+path, a); err != nil {
		t.Fatal(err)
	}
	l.Close()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	for address, want := range map[string]string{"unix://" + file: "no socket", "/tmp/x": "want unix", "unix://x": "want unix",
		"tcp://1": "missing port"} {
		if _, err := Listen(address, a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", address, err, want)
		}
	}
	tcp, err := Listen("tcp://:0", a)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if !tcp.Addr().(*net.TCPAddr).IP.IsLoopback() {
		t.Error(tcp.Addr())
	}
}
