package server

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/streams/broker"
)

// file sends a request whose answer is a file.
func (h *hostile) file(text string) nodeapi.FileAnswer {
	h.t.Helper()
	var r struct{ Data *nodeapi.FileAnswer }
	if err := json.Unmarshal([]byte(h.ask(text, `"descriptors"`)), &r); err != nil {
		h.t.Fatal(err)
	}
	return *r.Data
}

// written makes a file with data, and seals it.
func (h *hostile) written(id int, data string) nodeapi.FileAnswer {
	h.t.Helper()
	f := h.file(fmt.Sprintf(`{"id":%d,"func":"makeFile","data":{"bytes":%d}}`, id, len(data)))
	if _, err := unix.Pwrite(h.fds[len(h.fds)-2], []byte(data), 0); err != nil {
		h.t.Fatal(err)
	}
	h.ask(fmt.Sprintf(`{"id":%d,"func":"sealFile","data":{"file":"%s"}}`, id+1, f.File), `"data":{}`)
	return f
}

const openVolatile = `{"id":1,"func":"openStream","data":{"stream":"s","config":{"objectBytes":1024,"objects":4,` +
	`"volatile":true}}}`

// A file belongs to a namespace. A caller without the right to watch there, or to create keys, gets
// no file of it. A record of another namespace neither keeps the file nor makes it available.
func TestFilesOfOthers(t *testing.T) {
	p := &changing{t: t}
	rule := `[{user: "%d", namespace: shop, access: {shop: %s, other: %s}}]`
	p.set(fmt.Sprintf(rule, os.Getuid(), "write", "read"))
	_, path := start(t, Config{Authority: p})
	h := newHostile(t, path)
	f := h.written(1, "secret")
	h.ask(`{"id":3,"func":"makeFile","data":{"namespace":"other","bytes":1}}`, `"permission_denied"`)
	h.ask(`{"id":3,"func":"makeFile","data":{"namespace":"third","bytes":1}}`, `"permission_denied"`)
	for i, ask := range []string{
		`{"id":3,"func":"openFile","data":{"file":"%s","namespace":"third"}}`,
		`{"id":3,"func":"sealFile","data":{"file":"%s","namespace":"other"}}`,
		`{"id":3,"func":"openFile","data":{"file":"%s","namespace":"other"}}`,
		`{"id":3,"func":"openFile","data":{"file":"x%s"}}`,
	} {
		want := `"permission_denied"`
		if i >= 2 {
			want = `there is no file`
		}
		h.ask(fmt.Sprintf(ask, f.File), want)
	}
	// The rights are revoked, so later requests are refused.
	p.set(fmt.Sprintf(rule, os.Getuid(), "read", "write"))
	h.ask(`{"id":4,"func":"makeFile","data":{"bytes":1}}`, `"permission_denied"`)
	h.ask(strings.Replace(`{"id":9`+openVolatile[len(`{"id":1`):], `"stream":"s"`, `"stream":"s","namespace":"other"`, 1), `"made":true`)
	h.ask(fmt.Sprintf(`{"id":5,"func":"append","data":{"namespace":"other","stream":"s","records":[{"value":"x","files":["%s"]}]}}`,
		f.File), `there is no file`)
	if len(h.fds) != 2 {
		t.Errorf("%d descriptors came", len(h.fds))
	}
}

// When a program dies, its drafts, its files that no one else holds, and its announcements of
// decoding are released. Files that records refer to stay as long as the records.
func TestFilesOfTheDead(t *testing.T) {
	s, path := start(t, Config{Streams: &broker.Options{Limits: broker.Limits{Bytes: 1 << 20}}})
	left := func() int {
		n, _, _, _, _ := s.streams.Files().Count()
		return n
	}
	l := newHostile(t, path)
	l.ask(openVolatile, `"made":true`)
	h := newHostile(t, path)
	f := h.written(1, "kept")
	h.written(3, "not kept")
	h.file(`{"id":5,"func":"makeFile","data":{"bytes":65536}}`)
	h.ask(fmt.Sprintf(`{"id":6,"func":"append","data":{"stream":"s","records":[{"value":"x","files":["%s","%s"]}]}}`, f.File,
		f.File), `"appended":1`)
	if got := h.file(`{"id":7,"func":"openFile","data":{"key":"k"}}`); got.File != "" {
		t.Fatalf("there is %+v", got)
	}
	l.send(`{"id":2,"func":"openFile","data":{"key":"k"}}`) // this request waits for the other program
	if left() != 3 {
		t.Fatalf("%d files", left())
	}
	h.close()
	// now it is this program's turn to decode
	if got := l.receive(); !strings.Contains(got, `"descriptors":0`) {
		t.Fatal(got)
	}
	poll.Until(t, patience, "what the dead held to be given back", func() bool { return left() == 1 })
	// The other program's memory is free: 1 MiB, minus the stream's.
	l.ask(`{"id":3,"func":"makeFile","data":{"bytes":1048576}}`, `"quota_exceeded"`)
	if got := l.file(fmt.Sprintf(`{"id":4,"func":"openFile","data":{"file":"%s"}}`, f.File)); got.Bytes != 4 {
		t.Errorf("%+v", got)
	}
	l.ask(`{"id":5,"func":"cancel","data":{"id":4}}`, `"id":`)
	l.receive()
	for i := range 8 { // overwrite the record
		l.ask(fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"s","records":[{"value":"%s"}]}}`, 10+i,
			strings.Repeat("x", 800)), `"appended":1`)
	}
	poll.Until(t, patience, "the file to be given back", func() bool { return left() == 0 })
	l.ask(`{"id":30,"func":"deleteStream","data":{"stream":"s"}}`, `{}`)
	for _, fd := range l.fds { // open descriptors keep memory allocated
		unix.Close(fd)
	}
	l.fds = nil
	l.ask(`{"id":31,"func":"makeFile","data":{"bytes":1048576}}`, `"descriptors":2`) // all memory is free
}

// Malformed requests are refused, and files are passed only over Unix sockets.
func TestFilesHostile(t *testing.T) {
	s, path := start(t, Config{})
	h := newHostile(t, path)
	for _, data := range []string{`{"bytes":0}`, `{"bytes":-1}`, `{"bytes":1073741825}`, `{"bytes":9223372036854775807}`} {
		h.ask(`{"id":1,"func":"makeFile","data":`+data+`}`, `"invalid_argument"`)
	}
	h.ask(`{"id":1,"func":"makeFile","data":{"bytes":1073741824}}`, `"quota_exceeded"`)
	for _, data := range []string{`{}`, `{"file":"a","key":"b"}`, `{"key":"` + strings.Repeat("k", 257) + `"}`} {
		h.ask(`{"id":1,"func":"openFile","data":`+data+`}`, `"invalid_argument"`)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = s.Serve(l) }()
	nc, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for i, ask := range []string{`makeFile","data":{"bytes":1}`, `openFile","data":{"key":"k"}`} {
		if _, err := fmt.Fprintf(nc, `{"id":%d,"func":"%s}`+"\n", i+1, ask); err != nil {
			t.Fatal(err)
		}
		b := make([]byte, 4096)
		if n, err := nc.Read(b); err != nil || !strings.Contains(string(b[:n]), "by a Unix socket only") {
			t.Errorf("%s, %v", b[:n], err)
		}
	}
	// The number of held files of a namespace is bounded.
	for i := range 1100 {
		text := h.ask(fmt.Sprintf(`{"id":%d,"func":"makeFile","data":{"bytes":1}}`, 10+i), `"id"`)
		for _, fd := range h.fds {
			unix.Close(fd)
		}
		h.fds = h.fds[:0]
		if strings.Contains(text, `"quota_exceeded"`) {
			if i != 1024 {
				t.Errorf("%d files", i)
			}
			return
		}
	}
	t.Error("there are more files than a namespace may have")
}

// A file that its maker can still write to is passed, for reading, only to a caller that accepts
// such files. Only callers in the namespace learn which of these files are free.
func TestRewritableFiles(t *testing.T) {
	p := &changing{t: t}
	p.set(fmt.Sprintf(`[{user: "%d", namespace: shop, access: {shop: write, other: write, seen: read}}]`, os.Getuid()))
	s, path := start(t, Config{Authority: p})
	l := newHostile(t, path)
	l.ask(openVolatile, `"made":true`)
	h := newHostile(t, path)
	f := h.file(`{"id":1,"func":"makeFile","data":{"bytes":4096,"rewritable":true}}`)
	h.ask(`{"id":2,"func":"makeFile","data":{"bytes":1,"rewritable":true,"namespace":"seen"}}`, `"permission_denied"`)
	mapped, err := unix.Mmap(h.fds[0], 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	record := fmt.Sprintf(`"func":"append","data":{"stream":"s","records":[{"value":"x","files":["%s"]}]}}`, f.File)
	open := fmt.Sprintf(`"func":"openFile","data":{"file":"%s"`, f.File)
	free := fmt.Sprintf(`"func":"rewriteFile","data":{"files":["%s"]`, f.File)
	// these files may still be mapped for writing
	for _, ask := range []string{record, open + `,"rewritable":true}}`, free + `}}`} {
		h.ask(`{"id":3,`+ask, `there is no file`)
	}
	h.ask(fmt.Sprintf(`{"id":3,"func":"sealFile","data":{"file":"%s","key":"k"}}`, f.File), `has no key`)
	h.ask(fmt.Sprintf(`{"id":3,"func":"sealFile","data":{"file":"%s"}}`, f.File), `"data":{}`)
	h.ask(fmt.Sprintf(`{"id":3,"func":"sealFile","data":{"file":"%s"}}`, f.File), `sealed already`)
	if _, err := unix.Pwrite(h.fds[0], []byte("x"), 0); err == nil {
		t.Error("written to by a descriptor")
	}

	l.ask(`{"id":2,`+open+`}}`, `its maker may change it`)
	l.ask(`{"id":3,`+open+`,"rewritable":true,"namespace":"other"}}`, `there is no file`)
	l.ask(`{"id":4,`+free+`,"namespace":"other"}}`, `there is no file`)
	l.ask(`{"id":5,`+free+`,"namespace":"seen"}}`, `"permission_denied"`)
	l.ask(`{"id":6,`+free+`,"waitMs":-1}}`, `"invalid_argument"`)
	l.ask(`{"id":7,"func":"rewriteFile","data":{}}`, `"invalid_argument"`)
	l.ask(`{"id":8,"func":"rewriteFile","data":{"files":["`+strings.Repeat(`x","`, 1024)+`x"]}}`, `"invalid_argument"`)
	if len(l.fds) > 0 {
		t.Fatalf("%d descriptors came", len(l.fds))
	}
	if got := l.file(`{"id":9,` + open + `,"rewritable":true}}`); !got.Rewritable || got.Bytes != 4096 {
		t.Errorf("%+v", got)
	}
	if _, err := unix.Mmap(l.fds[0], 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		t.Error("its reader has it mapped for writing")
	}

	h.ask(`{"id":4,`+free+`}}`, `"files":["`+f.File+`"]`)
	h.ask(`{"id":5,`+record, `"appended":1`)
	h.ask(`{"id":6,`+free+`}}`, `"files":`)
	h.send(`{"id":7,` + free + `,"waitMs":60000},"timeoutMs":60000}`)
	for i := range 8 { // overwrite the record
		l.ask(fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"s","records":[{"value":"%s"}]}}`, 20+i,
			strings.Repeat("x", 800)), `"appended":1`)
	}
	if got := h.receive(); !strings.Contains(got, f.File) {
		t.Error(got)
	}
	// Its maker dies while a reader and a caller that waits for the file exist.
	h.ask(`{"id":8,`+record, `"appended":1`)
	h.close()
	l.ask(`{"id":40,`+free+`,"waitMs":1}}`, `"files":`)
	l.close()
	m := newHostile(t, path)
	m.ask(`{"id":1,"func":"deleteStream","data":{"stream":"s"}}`, `{}`)
	poll.Until(t, patience, "what the dead held to be given back", func() bool {
		n, _, _, _, _ := s.streams.Files().Count()
		return n == 0
	})
}

const opened = `{"id":%d,"func":"openFiles","data":{%s}}`

// A connection holds the files that it opened by openFiles until it gives each back as often as it
// opened it, or until it ends. Files in giveBack are released even if the rest of the request is
// refused. A caller cannot release files of other connections.
func TestOpenFiles(t *testing.T) {
	s, path := start(t, Config{})
	left := func() int {
		n, _, _, _, _ := s.streams.Files().Count()
		return n
	}
	h, l := newHostile(t, path), newHostile(t, path)
	a, b := h.written(1, "a"), h.written(3, "bb")
	both := fmt.Sprintf(`"files":["%s","%s","%s"]`, a.File, b.File, a.File)
	text := l.ask(fmt.Sprintf(opened, 1, both), `"descriptors":3`)
	if len(l.fds) != 3 || !strings.Contains(text, fmt.Sprintf(`{"file":"%s","bytes":2}`, b.File)) || strings.Contains(text, "more") {
		t.Fatalf("%d descriptors came with %s", len(l.fds), text)
	}
	for i, want := range []string{"a", "bb", "a"} {
		got := make([]byte, 4)
		if n, err := unix.Pread(l.fds[i], got, 0); err != nil || string(got[:n]) != want {
			t.Errorf("%d: %q, %v", i, got[:n], err)
		}
		if _, err := unix.Mmap(l.fds[i], 0, 1, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
			t.Errorf("%d: mapped for writing", i)
		}
	}
	h.close() // the maker has ended; the connections that opened the file still hold it
	m := newHostile(t, path)
	m.ask(fmt.Sprintf(opened, 1, fmt.Sprintf(`"giveBack":["%s","%s","x"]`, a.File, b.File)), `"descriptors":0`)
	// one of two references
	l.ask(fmt.Sprintf(opened, 2, fmt.Sprintf(`"giveBack":["%s"]`, a.File)), `"files":[]`)
	m.ask(fmt.Sprintf(opened, 2, `"files":["`+a.File+`"]`), `"descriptors":1`)
	if left() != 2 {
		t.Fatalf("%d files", left())
	}
	// The same file is opened and given back in one request, and is not lost in between.
	l.ask(fmt.Sprintf(opened, 3, fmt.Sprintf(`"files":["%s"],"giveBack":["%s"]`, b.File, b.File)), `"descriptors":1`)
	// Either all files are opened or none. Files in giveBack are released in any case.
	l.ask(fmt.Sprintf(opened, 4, fmt.Sprintf(`"files":["%s","0"],"giveBack":["%s","%s"]`, b.File, a.File, a.File)), `there is no file`)
	m.ask(fmt.Sprintf(opened, 3, fmt.Sprintf(`"giveBack":["%s"]`, a.File)), `"files":[]`)
	poll.Until(t, patience, "all but the file that is held to be gone, its maker, too", func() bool { return left() == 1 })
	l.close()
	poll.Until(t, patience, "what the dead held to be given back", func() bool { return left() == 0 })
}

// The refusals of openFiles. A refused request neither holds nor passes a file.
func TestOpenFilesHostile(t *testing.T) {
	p := &changing{t: t}
	rule := `[{user: "%d", namespace: shop, access: {shop: %s, other: write}}]`
	p.set(fmt.Sprintf(rule, os.Getuid(), "write"))
	s, path := start(t, Config{Authority: p, Limits: Limits{watches: 8}})
	h, l := newHostile(t, path), newHostile(t, path)
	f := h.written(1, "secret")
	changes := h.file(`{"id":3,"func":"makeFile","data":{"bytes":1,"rewritable":true}}`)
	draft := h.file(`{"id":4,"func":"makeFile","data":{"bytes":1}}`)
	h.ask(fmt.Sprintf(`{"id":5,"func":"sealFile","data":{"file":"%s"}}`, changes.File), `"data":{}`)
	name := func(n int, f string) string { return `["` + strings.Repeat(f+`","`, n-1) + f + `"]` }
	for i, c := range []struct{ data, want string }{
		{``, `"invalid_argument"`},
		{`"files":` + name(65, f.File), `"invalid_argument"`},
		{`"giveBack":` + name(1025, f.File), `"invalid_argument"`},
		{`"files":` + name(1, f.File) + `,"namespace":"other"`, `there is no file`},
		{`"files":` + name(1, f.File) + `,"namespace":"third"`, `"permission_denied"`},
		{`"files":` + name(1, draft.File), `there is no file`},
		{`"files":["` + f.File + `","` + changes.File + `"]`, `its maker may change it`},
		{`"files":` + name(9, f.File), `"quota_exceeded"`},
	} {
		l.ask(fmt.Sprintf(opened, i+1, c.data), c.want)
	}
	if len(l.fds) > 0 {
		t.Fatalf("%d descriptors came", len(l.fds))
	}
	// the refused requests hold nothing
	l.ask(fmt.Sprintf(opened, 20, `"files":`+name(8, f.File)), `"descriptors":8`)
	l.ask(fmt.Sprintf(opened, 21, `"files":`+name(1, f.File)), `"quota_exceeded"`)
	l.ask(fmt.Sprintf(opened, 22, `"giveBack":`+name(9, f.File)), `"files":[]`)
	l.ask(fmt.Sprintf(opened, 23, `"files":`+name(1, changes.File)+`,"rewritable":true`), `"rewritable":true`)
	// The rights are revoked, but the caller can still give back the files that it holds.
	p.set(fmt.Sprintf(`[{user: "%d", namespace: shop, access: {other: write}}]`, os.Getuid()))
	l.ask(fmt.Sprintf(opened, 24, `"files":`+name(1, f.File)+`,"giveBack":`+name(1, changes.File)), `"permission_denied"`)
	h.close()
	poll.Until(t, patience, "what the dead held to be given back", func() bool {
		n, _, _, _, _ := s.streams.Files().Count()
		return n == 0
	})
}

// A client that does not read the answers of openFiles is cut off, and uses only its own share of
// descriptors.
func TestOpenFilesUnread(t *testing.T) {
	s, path := start(t, Config{Limits: Limits{DescriptorTime: 300 * time.Millisecond}})
	h, l := newHostile(t, path), newHostile(t, path)
	f := h.written(1, "x")
	for i := range 200 {
		if _, err := fmt.Fprintf(l.nc, opened+"\n", i+1, `"files":["`+f.File+`"]`); err != nil {
			break // the client was cut off
		}
	}
	count := func() int {
		s.flying.mu.Lock()
		defer s.flying.mu.Unlock()
		return s.flying.all
	}
	poll.Until(t, patience, "who does not read to be cut off", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.conns) == 1
	})
	poll.Until(t, patience, "none to be on its way", func() bool { return count() == 0 })
	h.ask(fmt.Sprintf(opened, 3, `"files":["`+f.File+`"]`), `"descriptors":1`)
}
