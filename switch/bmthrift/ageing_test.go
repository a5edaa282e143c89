package bmthrift

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
)

// listener is a Publisher that forwards each message to a channel.
type listener chan []byte

func (l listener) Publish(m []byte) { l <- append([]byte{}, m...) }

// TestAgeing sets an idle timeout on an entry by its handle and reads the entry's age. A listener
// is notified once, with the handle in BMv2's format.
func TestAgeing(t *testing.T) {
	heard := make(listener, 16)
	w := newWorld(t, func(w *world) {
		w.files, w.options.Publisher = "../p4rtserver/testdata/ageing", heard
	})
	c, begun := w.dial(t), time.Now()
	add := func(last byte) idl.Handle {
		return get[int32](t, c, "bm_mt_add_entry", 0, "MyIngress.learned",
			idl.MatchKey{exact(0, 0, 0, 0, 0, last)}, "MyIngress.forward",
			idl.ActionData{{0, 2}}, idl.EntryOptions{})
	}
	other := add(1)
	h := add(2)
	if err := c.call("bm_mt_set_entry_ttl", 0, "MyIngress.learned", h, 1); err != nil {
		t.Fatal(err)
	}
	var m []byte
	select {
	case m = <-heard:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told of an entry that is idle")
	}
	if len(m) != 36 || string(m[:4]) != "AGE|" || binary.LittleEndian.Uint64(m[4:]) != 1 ||
		binary.LittleEndian.Uint32(m[28:]) != 1 ||
		idl.Handle(binary.LittleEndian.Uint32(m[32:])) != h {
		t.Errorf("the listener gets %x; the entry's handle is %d", m, h)
	}
	e := get[idl.Entry](t, c, "bm_mt_get_entry", 0, "MyIngress.learned", h)
	if e.Life == nil || e.Life.TimeoutMs != 1 || e.Life.TimeSinceHitMs < 1 {
		t.Errorf("the entry's life is %v", e.Life)
	}
	select {
	case m := <-heard:
		t.Errorf("the listener gets another message: %x", m)
	case <-time.After(500 * time.Millisecond):
	}
	e = get[idl.Entry](t, c, "bm_mt_get_entry", 0, "MyIngress.learned", other)
	if since := time.Duration(e.Life.TimeSinceHitMs) * time.Millisecond; e.Life.TimeoutMs != 0 ||
		since < 500*time.Millisecond || since > time.Since(begun)+time.Millisecond {
		t.Errorf("the life of an entry without a timeout is %v, %v after it was inserted", e.Life,
			time.Since(begun))
	}
}
