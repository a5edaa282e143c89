package nanomsg

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// subscribe connects to the Publisher as a SUB socket does.
func subscribe(t *testing.T, p *Publisher) net.Conn {
	t.Helper()
	c, err := net.Dial(p.Addr().Network(), p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	heard := make([]byte, 8)
	if _, err := c.Write([]byte("\x00SP\x00\x00\x21\x00\x00")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, heard); err != nil || string(heard) != "\x00SP\x00\x00\x20\x00\x00" {
		t.Fatalf("the publisher says %q: %v", heard, err)
	}
	for range 2000 { // wait until the Publisher has finished the handshake, too
		p.mu.Lock()
		ready := 0
		for s := range p.subscribers {
			if s.ready && s.conn.RemoteAddr().String() == c.LocalAddr().String() {
				ready++
			}
		}
		p.mu.Unlock()
		if ready > 0 {
			return c
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("the publisher does not take the subscriber")
	return nil
}

func publisher(t *testing.T, address string) *Publisher {
	t.Helper()
	p, err := Listen(address, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// TestPublish sends messages to two subscribers at each kind of address.
func TestPublish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	for address, before := range map[string]string{"tcp://127.0.0.1:0": "", "ipc://" + path: "\x01"} {
		p := publisher(t, address)
		for range 2 {
			c := subscribe(t, p)
			p.Publish([]byte("hello"))
			want := before + "\x00\x00\x00\x00\x00\x00\x00\x05hello"
			got := make([]byte, len(want))
			if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", address, got, err)
			}
		}
	}
}

// TestAddresses checks that Listen replaces a socket without a listener, and no other file.
func TestAddresses(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "stale")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	publisher(t, "ipc://"+stale)
	file, link := filepath.Join(dir, "file"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(file, link); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"ipc://" + stale, "ipc://" + file, "ipc://" + link,
		"udp://127.0.0.1:1", "nonsense", "", "ipc://" + dir + "/no/such"} {
		if p, err := Listen(bad, slog.Default()); err == nil {
			p.Close()
			t.Errorf("%q was taken", bad)
		}
	}
	if b, _ := os.ReadFile(file); !bytes.Equal(b, []byte("kept")) {
		t.Errorf("the file is %q", b)
	}
}

// TestStrangers connects subscribers that send nothing, send wrong data, connect in large numbers,
// or read nothing. A correct subscriber must still get all messages, and publishing must never
// wait.
func TestStrangers(t *testing.T) {
	p := publisher(t, "tcp://127.0.0.1:0")
	good := subscribe(t, p)
	_ = subscribe(t, p) // this subscriber reads nothing
	for i := range 100 {
		c, err := net.Dial("tcp", p.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			_, _ = fmt.Fprint(c, "GET / HTTP/1.1\r\n\r\n")
		}
	}
	big := make([]byte, 64<<10)
	began := time.Now()
	const messages = 500
	go func() {
		for range messages {
			p.Publish(big)
		}
	}()
	if n, err := io.CopyN(io.Discard, good, messages*int64(len(big)+8)); err != nil {
		t.Errorf("the subscriber that reads got %d bytes: %v", n, err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.subscribers) > maxSubscribers {
		t.Errorf("%d subscribers", len(p.subscribers))
	}
}
