package bmthrift_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/gen/standard"
)

// listener is a publisher that hands on what it is given.
type listener chan []byte

func (l listener) Publish(m []byte) { l <- append([]byte{}, m...) }

// TestAgeing: an entry gets a timeout by its handle, its life is read, and a listener is told its
// handle in BMv2's form.
func TestAgeing(t *testing.T) {
	heard := make(listener, 16)
	w := newWorld(t, func(w *world) {
		w.files, w.options.Publisher = "../p4rt/testdata/ageing", heard
	})
	c, ctx := w.dial(t), t.Context()
	add := func(last byte) standard.Handle {
		return must(c.BmMtAddEntry(ctx, 0, "MyIngress.learned",
			standard.MatchKey{exact(0, 0, 0, 0, 0, last)}, "MyIngress.forward",
			standard.ActionData{{0, 2}}, &standard.EntryOptions{}))(t)
	}
	add(1)
	h := add(2)
	if err := c.BmMtSetEntryTTL(ctx, 0, "MyIngress.learned", h, 1); err != nil {
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
		standard.Handle(binary.LittleEndian.Uint32(m[32:])) != h {
		t.Errorf("the listener gets %x; the entry's handle is %d", m, h)
	}
	e := must(c.BmMtGetEntry(ctx, 0, "MyIngress.learned", h))(t)
	if e.Life == nil || e.Life.TimeoutMs != 1 || e.Life.TimeSinceHitMs < 1 {
		t.Errorf("the entry's life is %v", e.Life)
	}
}
