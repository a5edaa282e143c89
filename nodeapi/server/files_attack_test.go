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

// file sends a request, and returns its answer, which must be a file.
func (h *hostile) file(text string) nodeapi.FileAnswer {
	h.t.Helper()
	var r struct{ Data *nodeapi.FileAnswer }
	if err := json.Unmarshal([]byte(h.ask(text, `"descriptors"`)), &r); err != nil {
		h.t.Fatal(err)
	}
	return *r.Data
}

// written makes a file with the given data, and seals it.
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

// TestFilesOfOthers checks that a caller needs rights in the namespace of a file. Without the right
// to watch there, or to create keys, the caller must not get any of its files. A record of another
// namespace must not hold such a file, or make it available.
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
	// The rights are revoked, so later requests must be refused.
	p.set(fmt.Sprintf(rule, os.Getuid(), "read", "write"))
	h.ask(`{"id":4,"func":"makeFile","data":{"bytes":1}}`, `"permission_denied"`)
	h.ask(strings.Replace(`{"id":9`+openVolatile[len(`{"id":1`):], `"stream":"s"`, `"stream":"s","namespace":"other"`, 1), `"made":true`)
	h.ask(fmt.Sprintf(`{"id":5,"func":"append","data":{"namespace":"other","stream":"s","records":[{"value":"x","files":["%s"]}]}}`,
		f.File), `there is no file`)
	if len(h.fds) != 2 {
		t.Errorf("%d descriptors came", len(h.fds))
	}
}

// TestFilesOfTheDead checks what happens to the files of a program that dies. Its drafts, the files
// that only it held, and its claims to make a file must be released. Files to which records refer
// must remain as long as the records.
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
	// this request waits for the program that intends to make the file
	l.send(`{"id":2,"func":"openFile","data":{"key":"k"}}`)
	if left() != 3 {
		t.Fatalf("%d files", left())
	}
	h.close()
	// now this program may make the file
	if got := l.receive(); !strings.Contains(got, `"descriptors":0`) {
		t.Fatal(got)
	}
	poll.Until(t, patience, "what the dead held to be given back", func() bool { return left() == 1 })
	// The dead program's memory is free again, which is 1 MiB minus the memory of the stream.
	l.ask(`{"id":3,"func":"makeFile","data":{"bytes":1048576}}`, `"quota_exceeded"`)
	if got := l.file(fmt.Sprintf(`{"id":4,"func":"openFile","data":{"file":"%s"}}`, f.File)); got.Bytes != 4 {
		t.Errorf("%+v", got)
	}
	l.ask(`{"id":5,"func":"cancel","data":{"id":4}}`, `"id":`)
	l.receive()
	for i := range 8 { // append records until the record that refers to the file is overwritten
		l.ask(fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"s","records":[{"value":"%s"}]}}`, 10+i,
			strings.Repeat("x", 800)), `"appended":1`)
	}
	poll.Until(t, patience, "the file to be given back", func() bool { return left() == 0 })
	l.ask(`{"id":30,"func":"deleteStream","data":{"stream":"s"}}`, `{}`)
	for _, fd := range l.fds { // close the descriptors, because open descriptors keep memory allocated
		unix.Close(fd)
	}
	l.fds = nil
	l.ask(`{"id":31,"func":"makeFile","data":{"bytes":1048576}}`, `"descriptors":2`) // now all memory is free
}

// TestFilesHostile checks that malformed requests are refused, and that files are passed only over
// Unix sockets.
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
	// The number of files that a namespace holds must be limited.
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

// TestRewritableFiles checks files to which their maker can still write after sealing. Such a file
// must be passed only to callers that accept it, and only for reading. Only callers with rights in
// the namespace may learn which of these files are free.
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
	// these requests must be refused, because the file may still be mapped for writing
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
	for i := range 8 { // append records until the record that refers to the file is overwritten
		l.ask(fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"s","records":[{"value":"%s"}]}}`, 20+i,
			strings.Repeat("x", 800)), `"appended":1`)
	}
	if got := h.receive(); !strings.Contains(got, f.File) {
		t.Error(got)
	}
	// The maker dies while a reader holds the file and another caller waits for it.
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

// TestOpenFiles checks that a connection holds the files that it opened by openFiles. It must hold
// a file until it has given the file back as often as it opened it, or until the connection ends.
// Files in giveBack must be released even if the rest of the request is refused. A caller must not
// be able to release files of other connections.
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
	h.close() // the maker's connection ends, but the connections that opened the file still hold it
	m := newHostile(t, path)
	m.ask(fmt.Sprintf(opened, 1, fmt.Sprintf(`"giveBack":["%s","%s","x"]`, a.File, b.File)), `"descriptors":0`)
	// This releases one of the two holds of the file.
	l.ask(fmt.Sprintf(opened, 2, fmt.Sprintf(`"giveBack":["%s"]`, a.File)), `"files":[]`)
	m.ask(fmt.Sprintf(opened, 2, `"files":["`+a.File+`"]`), `"descriptors":1`)
	if left() != 2 {
		t.Fatalf("%d files", left())
	}
	// One request opens a file and gives it back. The file must not be lost in between.
	l.ask(fmt.Sprintf(opened, 3, fmt.Sprintf(`"files":["%s"],"giveBack":["%s"]`, b.File, b.File)), `"descriptors":1`)
	// The request must open either all files or none. Files in giveBack must be released in any
	// case.
	l.ask(fmt.Sprintf(opened, 4, fmt.Sprintf(`"files":["%s","0"],"giveBack":["%s","%s"]`, b.File, a.File, a.File)), `there is no file`)
	m.ask(fmt.Sprintf(opened, 3, fmt.Sprintf(`"giveBack":["%s"]`, a.File)), `"files":[]`)
	poll.Until(t, patience, "all but the file that is held to be gone, its maker, too", func() bool { return left() == 1 })
	l.close()
	poll.Until(t, patience, "what the dead held to be given back", func() bool { return left() == 0 })
}

// TestOpenFilesHostile checks the requests that openFiles must refuse. A refused request must not
// hold or pass a file.
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
	// this succeeds because the refused requests hold nothing
	l.ask(fmt.Sprintf(opened, 20, `"files":`+name(8, f.File)), `"descriptors":8`)
	l.ask(fmt.Sprintf(opened, 21, `"files":`+name(1, f.File)), `"quota_exceeded"`)
	l.ask(fmt.Sprintf(opened, 22, `"giveBack":`+name(9, f.File)), `"files":[]`)
	l.ask(fmt.Sprintf(opened, 23, `"files":`+name(1, changes.File)+`,"rewritable":true`), `"rewritable":true`)
	// After its rights are revoked, the caller can still give back the files that it holds.
	p.set(fmt.Sprintf(`[{user: "%d", namespace: shop, access: {other: write}}]`, os.Getuid()))
	l.ask(fmt.Sprintf(opened, 24, `"files":`+name(1, f.File)+`,"giveBack":`+name(1, changes.File)), `"permission_denied"`)
	h.close()
	poll.Until(t, patience, "what the dead held to be given back", func() bool {
		n, _, _, _, _ := s.streams.Files().Count()
		return n == 0
	})
}

// TestOpenFilesUnread checks a client that does not read the answers of openFiles. Its connection
// must be closed, and it must use up only its own share of descriptors.
func TestOpenFilesUnread(t *testing.T) {
	s, path := start(t, Config{Limits: Limits{DescriptorTime: 300 * time.Millisecond}})
	h, l := newHostile(t, path), newHostile(t, path)
	f := h.written(1, "x")
	for i := range 200 {
		if _, err := fmt.Fprintf(l.nc, opened+"\n", i+1, `"files":["`+f.File+`"]`); err != nil {
			break // the server has closed the connection
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
