package server

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/internal/testutil/growth"
)

// FuzzCursor lets a consumer write anything into the cursor page that it shares with the server,
// while the server writes to the stream. After the consumer has disconnected, the stream must
// continue, and the server must hold nothing for the consumer.
func FuzzCursor(f *testing.F) {
	page := make([]byte, stream.CursorBytes)
	c, err := stream.FormatCursor(page, 1)
	if err != nil {
		f.Fatal(err)
	}
	c.LetGo(0, 3, 3)
	whole := bytes.Clone(page[:256])
	f.Add(whole, []byte(nil), uint8(0))
	f.Add([]byte{}, whole[64:], uint8(64))
	f.Add(bytes.Repeat([]byte{0xFF}, stream.CursorBytes), []byte{0}, uint8(128))
	f.Add(make([]byte, stream.CursorBytes), bytes.Repeat([]byte{1}, 64), uint8(128))
	_, path := start(f, Config{})
	watch := growth.Watch()
	appends := func(id int) string {
		return fmt.Sprintf(`{"id":%d,"func":"append","data":{"stream":"s","records":[{"value":"%s"}]},"timeoutMs":%d}`, id,
			strings.Repeat("x", 800), patience.Milliseconds())
	}
	f.Fuzz(func(t *testing.T, first, later []byte, at uint8) {
		watch(t)
		writer := newHostile(t, path)
		defer writer.close()
		writer.ask(strings.Replace(openS, "3600000", "20", 1), `"stream`)
		h := newHostile(t, path)
		defer h.close()
		h.subscribe(1)
		b, err := unix.Mmap(h.fds[0], 0, stream.CursorBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = unix.Munmap(b) }()
		copy(b, first)
		for id := range 6 { // append more records than fit into the ring
			writer.send(appends(id + 2))
		}
		for i := range later {
			b[(int(at)+i)%len(b)] = later[i]
		}
		for range 6 {
			if got := writer.receive(); !strings.Contains(got, `"appended":1`) {
				t.Fatal(got)
			}
		}
		h.close()
		writer.ask(appends(8), `"appended":1`)
		writer.ask(`{"id":9,"func":"read","data":{"stream":"s","from":"earliest"}}`, `"value":"xxx`)
	})
}
