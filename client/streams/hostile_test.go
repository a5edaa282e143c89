package streams

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
)

// These constants describe the layout of the hostile server's memory.
const (
	hostileObject  = stream.MinObjectBytes
	hostileObjects = stream.MinObjects
	object0        = stream.HeaderBytes
	object1        = object0 + hostileObject
	record0        = object0 + stream.ObjectHeaderBytes
	record1        = record0 + 32
)

// hostile is a server that passes invalid memory to its clients.
type hostile struct {
	segment, cursor []byte
	told            nodeapi.SubscribeAnswer
	pass            int // number of file descriptors to pass
	unsealed, skip  bool
	socket          string
	// bytes that the server writes over the objects after it has passed the segment
	later []byte
	quiet time.Duration // read ends when nothing was readable for this time
}

// newHostile makes a server with valid memory: an object with the records "ab" and "cd", and an
// object with the record "ef".
func newHostile(t testing.TB) *hostile {
	t.Helper()
	h := &hostile{segment: make([]byte, stream.SegmentBytes(hostileObjects, hostileObject)),
		cursor: make([]byte, stream.CursorBytes), pass: 2, quiet: 20 * time.Millisecond,
		socket: filepath.Join(t.TempDir(), "s")}
	s, err := stream.Format(h.segment, hostileObjects, hostileObject, 1, 0)
	if err != nil {
		t.Fatal(err)
	}
	s.Begin(0, 0)
	s.Put(0, 0, stream.Record{Data: []byte("ab")})
	s.Put(0, 32, stream.Record{Data: []byte("cd")})
	s.Publish(0, 64, 2)
	s.Begin(1, 2)
	s.Put(1, 0, stream.Record{Data: []byte("ef")})
	s.Publish(1, 32, 1)
	if _, err := stream.FormatCursor(h.cursor, 1); err != nil {
		t.Fatal(err)
	}
	h.told = nodeapi.SubscribeAnswer{Descriptors: 2, Incarnation: "i",
		Partitions: []nodeapi.PartitionStart{{Bytes: len(h.segment), Generation: "1"}}}
	return h
}

func (h *hostile) word(at int, v uint64) { binary.LittleEndian.PutUint64(h.segment[at:], v) }
func (h *hostile) half(at int, v uint32) { binary.LittleEndian.PutUint32(h.segment[at:], v) }

// file makes a memfd with the content, sealed like the files of streams.
func (h *hostile) file(t testing.TB, content []byte) int {
	fd, err := unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err == nil && len(content) > 0 {
		_, err = unix.Pwrite(fd, content, 0)
	}
	if err == nil && !h.unsealed {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// serve answers one subscription, and then waits until the reader disconnects.
func (h *hostile) serve(t testing.TB) (stop func()) {
	l, err := net.Listen("unix", h.socket)
	if err != nil {
		t.Fatal(err)
	}
	over, done := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() {
		nc, err := l.Accept()
		if err != nil {
			return
		}
		defer nc.Close()
		defer context.AfterFunc(over, func() { nc.Close() })()
		in := bufio.NewReader(nc)
		if _, err := in.ReadBytes('\n'); err != nil {
			return
		}
		data, _ := json.Marshal(h.told)
		fds := []int{h.file(t, h.cursor), h.file(t, h.segment)}
		for len(fds) < h.pass {
			fds = append(fds, h.file(t, h.segment))
		}
		_, _, _ = nc.(*net.UnixConn).WriteMsgUnix(fmt.Appendf(nil, `{"id":1,"data":%s,"more":true}`+"\n", data),
			unix.UnixRights(fds[:h.pass]...), nil)
		for at := range h.later {
			_, _ = unix.Pwrite(fds[1], h.later[at:at+1], int64(object0+at)%int64(len(h.segment)))
		}
		for _, fd := range fds {
			unix.Close(fd)
		}
		_, _ = in.ReadByte()
	})
	return func() { done(); l.Close(); serving.Wait() }
}

// read reads until no more records come. It always ends, whatever the memory contains, because a
// reader stops waiting when its context ends.
func (h *hostile) read(t testing.TB) (got []string, err error) {
	t.Helper()
	defer h.serve(t)()
	type result struct {
		got []string
		err error
	}
	ended := make(chan result, 1)
	go func() {
		var got []string
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		r, err := Open(ctx, Config{Socket: h.socket, Stream: "s", Skip: h.skip})
		if err != nil {
			ended <- result{nil, err}
			return
		}
		defer r.Close()
		for {
			short, cancel := context.WithTimeout(context.Background(), h.quiet)
			b, err := r.Next(short)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			if b == nil {
				ended <- result{got, err}
				return
			}
			for _, record := range b.Records() {
				got = append(got, string(record.Data))
			}
		}
	}()
	select {
	case r := <-ended:
		return r.got, r.err
	case <-time.After(5 * time.Second):
		t.Fatal("the reader looks at the memory for ever")
		return nil, nil
	}
}

// TestHostileMemory checks that if a server passes invalid memory, the reader returns an error,
// reads nothing else, and ends.
func TestHostileMemory(t *testing.T) {
	if got, err := newHostile(t).read(t); err != nil || fmt.Sprint(got) != "[ab cd ef]" {
		t.Fatalf("what is right is read as %q, %v", got, err)
	}
	for _, c := range []struct {
		name   string
		mutate func(h *hostile)
	}{
		{"another magic", func(h *hostile) { h.segment[0] = 'X' }},
		{"another layout", func(h *hostile) { h.half(8, 2) }},
		{"another header", func(h *hostile) { h.half(12, 8192) }},
		{"objects of no power of two", func(h *hostile) { h.half(16, 1032) }},
		{"objects of a negative size", func(h *hostile) { h.half(16, 1<<31) }},
		{"objects of no size", func(h *hostile) { h.half(16, 0) }},
		{"more objects than there are", func(h *hostile) { h.half(20, 5) }},
		{"2^32-1 objects", func(h *hostile) { h.half(20, 1<<32-1) }},
		{"no objects", func(h *hostile) { h.half(20, 0) }},
		{"a file that is shorter", func(h *hostile) { h.segment = h.segment[:4096] }},
		{"an empty file", func(h *hostile) { h.segment = nil }},
		{"a file that can be made shorter", func(h *hostile) { h.unsealed = true }},
		{"a length of nothing", func(h *hostile) { h.told.Partitions[0].Bytes = 0 }},
		{"a length below nothing", func(h *hostile) { h.told.Partitions[0].Bytes = -4096 }},
		{"a length of 2^62", func(h *hostile) { h.told.Partitions[0].Bytes = 1 << 62 }},
		{"an object larger than objects are", func(h *hostile) { h.word(object0+16, 961<<32|2) }},
		{"an object of 2^32-1 bytes", func(h *hostile) { h.word(object0+16, 1<<64-1) }},
		{"a record beyond its object", func(h *hostile) { h.half(record1, 9) }},
		{"a record of 2^32-1 bytes", func(h *hostile) { h.half(record0, 1<<32-1) }},
		{"a record of 2^31 bytes", func(h *hostile) { h.half(record0, 1<<31) }},
		{"half a record", func(h *hostile) { h.word(object0+16, 72<<32|2) }},
		{"half a record behind those that were read", func(h *hostile) {
			h.word(object0+16, 72<<32|2)
			h.told.Partitions[0].Offset = 2
		}},
		{"no records, but bytes", func(h *hostile) { h.half(record0, 1000) }},
		{"more records than it says", func(h *hostile) { h.word(object0+16, 64<<32|1) }},
		{"fewer records than it says", func(h *hostile) { h.word(object0+16, 64<<32|3) }},
		{"an offset below nothing", func(h *hostile) { h.word(object0+8, 1<<64-7) }},
		{"an object whose offsets go back", func(h *hostile) { h.word(object1+8, 1) }},
		{"the newest object with half a record", func(h *hostile) { h.word(object1+16, 40<<32|1) }},
		{"another cursor page", func(h *hostile) { h.cursor[0] = 'X' }},
		{"a cursor page of 2 cells", func(h *hostile) { h.cursor[8] = 2 }},
		{"a cursor page of 2^32-1 cells", func(h *hostile) { copy(h.cursor[8:], "\xff\xff\xff\xff") }},
		{"a short cursor page", func(h *hostile) { h.cursor = h.cursor[:100] }},
		{"an empty cursor page", func(h *hostile) { h.cursor = nil }},
		{"no descriptor of memory", func(h *hostile) { h.pass = 1 }},
		{"a descriptor too many", func(h *hostile) { h.pass = 3 }},
		{"no partition", func(h *hostile) { h.told.Partitions = nil }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHostile(t)
			c.mutate(h)
			if got, err := h.read(t); !errors.Is(err, errGarbage) {
				t.Errorf("%q was read, %v", got, err)
			}
		})
	}
}

// TestHostileNumbers checks that objects with impossible numbers count as missing.
func TestHostileNumbers(t *testing.T) {
	for _, number := range []uint64{1<<64 - 1, 1<<63 - 1, 1 << 63, 1 << 32} {
		h := newHostile(t)
		h.word(64, number)
		if got, err := h.read(t); err != nil || fmt.Sprint(got) != "[ab cd ef]" {
			t.Errorf("%d objects were begun: %q was read, %v", number, got, err)
		}
		h = newHostile(t)
		h.word(object0, number)
		if got, err := h.read(t); err != nil || fmt.Sprint(got) != "[ef]" {
			t.Errorf("an object that is %d: %q was read, %v", number, got, err)
		}
	}
}

// TestHostileBytes checks that whatever the memory contains, a reader ends, and returns only errors
// that are documented.
func TestHostileBytes(t *testing.T) {
	random := rand.New(rand.NewPCG(18, 0))
	refused := 0
	const rounds = 100
	for round := range rounds {
		h := newHostile(t)
		for range 1 + round%4 {
			area, at := h.segment, random.IntN(96)
			switch random.IntN(3) {
			case 0:
				at = object0 + random.IntN(hostileObject/4)
			case 1:
				area = h.cursor
			}
			area[at] = byte(random.Uint32())
		}
		_, err := h.read(t)
		if err != nil && !errors.Is(err, errGarbage) && !errors.Is(err, ErrOverrun) {
			t.Errorf("round %d: %v", round, err)
		}
		if err != nil {
			refused++
		}
	}
	if refused < rounds/10 || refused == rounds {
		t.Errorf("%d of %d were refused", refused, rounds)
	}
}

// FuzzMemory checks readers on arbitrary memory, which may change while it is read, and with an
// arbitrary answer of the server. A reader must end with a documented error, and leave no memory
// mapped.
func FuzzMemory(f *testing.F) {
	valid := newHostile(f)
	whole := uint64(len(valid.segment))
	f.Add(valid.segment, valid.cursor, []byte(nil), uint64(0), uint64(0), uint64(0), whole, false)
	f.Add(valid.segment, valid.cursor, bytes.Repeat([]byte{255}, 64), uint64(2), uint64(1), uint64(1), whole, true)
	f.Add(valid.segment, valid.cursor, valid.segment[object1:][:64], uint64(1), uint64(0), uint64(0), whole, true)
	f.Add(valid.segment[:object1], valid.cursor[:64], []byte{1}, uint64(1<<63), uint64(1<<63), uint64(9), uint64(1<<62),
		false)
	calls := 0
	f.Fuzz(func(t *testing.T, segment, cursor, later []byte, offset, object, missed, size uint64, skip bool) {
		// internal/testutil/growth cannot be used here, because it is in the root module.
		if calls++; calls%1000 == 0 {
			if open, _ := os.ReadDir("/proc/self/fd"); len(open) > 300 || runtime.NumGoroutine() > 600 {
				t.Fatalf("after %d inputs %d files are open and %d goroutines run", calls, len(open), runtime.NumGoroutine())
			}
		}
		h := newHostile(t)
		h.segment, h.cursor, h.quiet, h.skip = segment, cursor, time.Millisecond, skip
		if len(segment) > 0 {
			h.later = later[:min(len(later), 256)]
		}
		h.told.Partitions[0] = nodeapi.PartitionStart{Bytes: int(size), Generation: "1", Offset: offset, Object: object,
			Missed: missed}
		_, err := h.read(t)
		if err != nil && !errors.Is(err, errGarbage) && !errors.Is(err, ErrOverrun) &&
			!errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}
