package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/streams/broker"
	"github.com/netcraq/netcraq/streams/source"
)

const patience = 30 * time.Second

// hostile is a consumer that accesses the server without a client library.
type hostile struct {
	t    testing.TB
	nc   *net.UnixConn
	fds  []int
	said nodeapi.SubscribeAnswer
}

func newHostile(t testing.TB, path string) *hostile {
	t.Helper()
	nc, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	h := &hostile{t: t, nc: nc}
	t.Cleanup(h.close)
	return h
}

func (h *hostile) close() {
	h.nc.Close()
	for _, fd := range h.fds {
		unix.Close(fd)
	}
	h.fds = nil
}

func (h *hostile) send(text string) {
	h.t.Helper()
	if _, err := h.nc.Write([]byte(text + "\n")); err != nil {
		h.t.Fatal(err)
	}
}

// receive reads a line, byte by byte, together with the descriptors that arrive.
func (h *hostile) receive() string {
	h.t.Helper()
	_ = h.nc.SetReadDeadline(time.Now().Add(patience))
	var line []byte
	b, rights := make([]byte, 1), make([]byte, unix.CmsgSpace(4*64))
	for {
		n, m, _, _, err := h.nc.ReadMsgUnix(b, rights)
		if err != nil || n == 0 {
			h.t.Fatalf("after %q: %v", line, err)
		}
		messages, _ := unix.ParseSocketControlMessage(rights[:m])
		for _, msg := range messages {
			got, _ := unix.ParseUnixRights(&msg)
			h.fds = append(h.fds, got...)
		}
		if b[0] == '\n' {
			return string(line)
		}
		line = append(line, b[0])
	}
}

func (h *hostile) ask(text, has string) string {
	h.t.Helper()
	h.send(text)
	got := h.receive()
	if !strings.Contains(got, has) {
		h.t.Fatalf("%s\nis answered %s\nwithout     %s", text, got, has)
	}
	return got
}

// subscribe subscribes to the stream "s", and maps its memory.
func (h *hostile) subscribe(id int) {
	h.t.Helper()
	got := h.ask(fmt.Sprintf(`{"id":%d,"func":"subscribe","data":{"stream":"s"}}`, id), `"descriptors"`)
	var r struct{ Data *nodeapi.SubscribeAnswer }
	if err := json.Unmarshal([]byte(got), &r); err != nil {
		h.t.Fatal(err)
	}
	h.said = *r.Data
	if len(h.fds) != h.said.Descriptors {
		h.t.Fatalf("%d descriptors came, of %d", len(h.fds), h.said.Descriptors)
	}
}

func (h *hostile) mapped(fd, size, prot int) []byte {
	h.t.Helper()
	b, err := unix.Mmap(fd, 0, size, prot, unix.MAP_SHARED)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

const openS = `{"id":1,"func":"openStream","data":{"stream":"s","config":{"objectBytes":1024,"objects":4,"stallMs":3600000}}}`

// TestSegmentIsReadOnly checks that a consumer can only read the memory that it gets. This must
// hold even for root, which is the user that usually runs this test.
func TestSegmentIsReadOnly(t *testing.T) {
	_, path := start(t, Config{})
	h := newHostile(t, path)
	h.ask(openS, `"made":true`)
	h.ask(`{"id":2,"func":"append","data":{"stream":"s","records":[{"value":"secret"}]}}`, `"appended":1`)
	h.subscribe(3)
	fd, size := h.fds[1], h.said.Partitions[0].Bytes
	if _, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EACCES) {
		t.Errorf("mapped for writing: %v", err)
	}
	b := h.mapped(fd, size, unix.PROT_READ)
	if s, err := stream.Open(b); err != nil {
		t.Error(err)
	} else if o, ok := s.Object(0); !ok || o.Count != 1 {
		t.Errorf("%+v", o)
	}
	if err := unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("made writable: %v", err)
	}
	func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		defer func() {
			if recover() == nil {
				t.Error("it was written to")
			}
		}()
		b[stream.HeaderBytes] = 1
	}()
	if _, err := unix.Pwrite(fd, []byte("x"), 0); !errors.Is(err, unix.EBADF) {
		t.Errorf("written by its descriptor: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); err == nil {
		t.Error("truncated")
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err == nil {
		t.Error("sealed against its writer")
	}
	// A second open for writing must fail or, for root, must have no effect.
	again, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", fd), unix.O_RDWR, 0)
	if err == nil {
		defer unix.Close(again)
		_, err := unix.Mmap(again, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if !errors.Is(err, unix.EPERM) {
			t.Errorf("opened anew and mapped for writing: %v", err)
		}
		if _, err := unix.Pwrite(again, []byte("x"), 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("opened anew and written: %v", err)
		}
		if err := unix.Ftruncate(again, 0); !errors.Is(err, unix.EPERM) {
			t.Errorf("opened anew and truncated: %v", err)
		}
		hole := uint32(unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE)
		if err := unix.Fallocate(again, hole, 0, 4096); !errors.Is(err, unix.EPERM) {
			t.Errorf("opened anew, with a hole punched: %v", err)
		}
	}
	// The cursor page must not be truncated, because the server uses it.
	if err := unix.Ftruncate(h.fds[0], 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("the cursor page was truncated: %v", err)
	}
	h.ask(`{"id":4,"func":"read","data":{"stream":"s"}}`, `"value":"secret"`)
}

// TestForgedCursor checks that a consumer that writes garbage into its cursor page affects only
// itself. The stream must continue, for other consumers, too.
func TestForgedCursor(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	l.send(openS)
	l.expectPart(`"made":true`)
	fill := func() {
		t.Helper()
		for i := range 20 { // append more records than fit into the ring
			l.send(fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"s","records":[{"value":"%s"}]}}`, 100+i,
				strings.Repeat("x", 800)))
			l.expectPart(`"appended":1`)
		}
	}
	fill()
	for name, attack := range map[string]func(b []byte, c *stream.Cursor){
		"beyond": func(_ []byte, c *stream.Cursor) { c.Held(0).Store(1 << 40) },
		"most":   func(_ []byte, c *stream.Cursor) { c.Held(0).Store(^uint64(0)) },
		"next":   func(_ []byte, c *stream.Cursor) { c.Held(0).Store(20); c.Next(0).Store(1 << 50) },
		"ones": func(b []byte, _ *stream.Cursor) {
			for i := range b {
				b[i] = 0xFF
			}
		},
	} {
		h := newHostile(t, path)
		h.subscribe(1)
		b := h.mapped(h.fds[0], stream.CursorBytes, unix.PROT_READ|unix.PROT_WRITE)
		c, err := stream.OpenCursor(b)
		if err != nil {
			t.Fatal(err)
		}
		attack(b, c)
		fill()
		if got := h.receive(); !strings.Contains(got, `"code":"invalid_argument"`) {
			t.Errorf("%s: %s", name, got)
		}
		h.close()
	}
	// If the position in the page goes back, or the page is filled with zeros, the consumer must be
	// treated as if it had not moved.
	h := newHostile(t, path)
	h.subscribe(1)
	b := h.mapped(h.fds[0], stream.CursorBytes, unix.PROT_READ|unix.PROT_WRITE)
	clear(b)
	l.send(`{"id":1,"func":"append","data":{"stream":"s","records":[{"value":"` + strings.Repeat("x", 800) + `"}]},"timeoutMs":100}`)
	l.expectPart(`"timeout"`)
	h.close()
	fill()
}

// TestSegmentOfOthers checks that the server does not pass the streams of other namespaces. If a
// right is revoked, the subscription must end, and the server must no longer write to the memory
// that was mapped.
func TestSegmentOfOthers(t *testing.T) {
	p := &changing{t: t}
	rule := `[{user: "%d", namespace: shop, access: {shop: %s}}]`
	p.set(fmt.Sprintf(rule, os.Getuid(), "write"))
	_, path := start(t, Config{Authority: p})
	h := newHostile(t, path)
	h.ask(`{"id":1,"func":"subscribe","data":{"stream":"s","namespace":"other"}}`, `"permission_denied"`)
	h.ask(openS, `"made":true`)
	h.subscribe(2)
	s, err := stream.Open(h.mapped(h.fds[1], h.said.Partitions[0].Bytes, unix.PROT_READ))
	if err != nil {
		t.Fatal(err)
	}
	p.set(fmt.Sprintf(`[{user: "%d", namespace: shop, access: {other: write}}]`, os.Getuid()))
	if got := h.receive(); !strings.Contains(got, `"permission_denied"`) {
		t.Fatal(got)
	}
	poll.Until(t, patience, "the segment to be left", s.Ended)
	p.set(fmt.Sprintf(rule, os.Getuid(), "write"))
	l := dial(t, path)
	l.send(`{"id":1,"func":"append","data":{"stream":"s","records":[{"value":"secret"}]}}`)
	l.expectPart(`"appended":1`)
	if s.Begun() != 0 {
		t.Error("who may not read any more sees what is written")
	}
}

// TestDescriptorsUnread checks that the number of unread descriptors is limited, and that they
// affect no other client. Connections that do not read descriptors must be closed.
func TestDescriptorsUnread(t *testing.T) {
	_, path := start(t, Config{Limits: Limits{DescriptorTime: 2 * time.Second}})
	l := dial(t, path)
	l.send(`{"id":1,"func":"openStream","data":{"stream":"s","config":{"partitions":31,"objectBytes":1024,"objects":4}}}`)
	l.expectPart(`"made":true`)
	var all []*hostile
	for range 8 {
		h := newHostile(t, path)
		h.send(`{"id":1,"func":"subscribe","data":{"stream":"s"}}`)
		all = append(all, h)
	}
	passed, refused := 0, 0
	l.send(`{"id":2,"func":"ping"}`)
	l.expectPart(`"id":2`)
	poll.Until(t, patience, "all to be answered or cut off", func() bool {
		passed, refused = 0, 0
		for _, h := range all {
			n := 0
			raw, _ := h.nc.SyscallConn()
			_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ) })
			switch {
			case n > 1000:
				passed++
			case n > 0:
				refused++
			}
		}
		return passed+refused == len(all)
	})
	if passed != 4 || refused != 4 {
		t.Errorf("%d subscriptions of 32 descriptors were passed, %d refused", passed, refused)
	}
	poll.Until(t, patience, "there to be room again", func() bool {
		h := newHostile(t, path)
		defer h.close()
		h.send(`{"id":1,"func":"subscribe","data":{"stream":"s"}}`)
		return strings.Contains(h.receive(), `"descriptors"`)
	})
}

// TestStreamBounds checks that the numbers of streams and subscriptions of each namespace are
// limited.
func TestStreamBounds(t *testing.T) {
	limits := broker.Limits{Streams: 2, Consumers: 3, Bytes: 1 << 20}
	_, path := start(t, Config{Streams: &broker.Options{Limits: limits}})
	h := newHostile(t, path)
	open := `{"id":1,"func":"openStream","data":{"stream":"%s","config":{"objectBytes":%d}}}`
	h.ask(fmt.Sprintf(open, "large", 1<<16), `"quota_exceeded"`)
	h.ask(fmt.Sprintf(open, "s", 1<<10), `"made":true`)
	h.ask(fmt.Sprintf(open, "s2", 1<<10), `"made":true`)
	h.ask(fmt.Sprintf(open, "s3", 1<<10), `"quota_exceeded"`)
	for i := range 3 {
		h.ask(fmt.Sprintf(`{"id":%d,"func":"subscribe","data":{"stream":"s"}}`, 10+i), `"descriptors"`)
	}
	h.ask(`{"id":20,"func":"subscribe","data":{"stream":"s"}}`, `"quota_exceeded"`)
	h.send(`{"id":21,"func":"cancel","data":{"id":10}}`)
	h.receive()
	h.receive()
	poll.Until(t, patience, "the one that was canceled to have gone", func() bool {
		h.send(`{"id":22,"func":"subscribe","data":{"stream":"s"}}`)
		return strings.Contains(h.receive(), `"descriptors"`)
	})
	h.ask(`{"id":30,"func":"append","data":{"stream":"s","records":[{"value":"`+strings.Repeat("x", 1000)+`"}]}}`, `"too_large"`)
	h.ask(`{"id":31,"func":"openStream","data":{"stream":"../x","config":{}}}`, `"invalid_argument"`)
	h.ask(`{"id":32,"func":"openStream","data":{"stream":"s","config":{"objectBytes":2048}}}`, `"invalid_argument"`)
	h.ask(`{"id":33,"func":"read","data":{"stream":"s","offset":7}}`, `"invalid_argument"`)
	h.ask(`{"id":34,"func":"append","data":{"stream":"s","records":[{"value":"x"}],"at":5}}`, `"wrong_offset"`)
	h.ask(`{"id":35,"func":"append","data":{"stream":"s","records":[{"value":"x"}],"at":0}}`, `"offset":0`)
}

// TestForbiddenSources checks the sources that a stream cannot have. These are a source that the
// server does not offer, a source that its operator denies to the namespace, and two sources at
// once.
func TestForbiddenSources(t *testing.T) {
	made := make(chan string, 4)
	_, path := start(t, Config{Sources: map[string]source.Maker{
		"etcd": func(ns string, c nodeapi.StreamSource) (source.Source, error) {
			made <- ns + " " + c.Etcd.Prefix
			return nil, nodeapi.Errorf(nodeapi.CodePermissionDenied, "", "not for you")
		}}})
	h := newHostile(t, path)
	open := `{"id":1,"func":"openStream","data":{"stream":"s","config":{"source":%s}}}`
	for _, c := range []struct{ source, want string }{
		{`{"etcd":{"prefix":"/registry/"}}`, `"permission_denied"`},
		{`{"jetstream":{"stream":"ORDERS"}}`, `"unavailable"`},
		{`{}`, `"invalid_argument"`},
		{`{"etcd":{"prefix":"/a/"},"keys":{"prefix":""}}`, `"invalid_argument"`},
	} {
		h.ask(fmt.Sprintf(open, c.source), c.want)
	}
	if got := <-made; got != "default /registry/" || len(made) > 0 {
		t.Errorf("the source was asked for %q, and %d times more", got, len(made))
	}
	h.ask(`{"id":2,"func":"listStreams"}`, `"streams":[]`)
}
