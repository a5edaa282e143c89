package ebpf

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/netcraq/netcraq/switch/interp"
)

// heard is a log handler that collects a program's messages.
type heard struct {
	slog.Handler
	mu    sync.Mutex
	texts []string
	wait  chan struct{} // the handler blocks until this channel is closed
}

func (h *heard) Enabled(context.Context, slog.Level) bool { return true }

func (h *heard) Handle(_ context.Context, r slog.Record) error {
	if r.Message != "program" {
		return nil
	}
	h.mu.Lock()
	wait := h.wait
	h.mu.Unlock()
	<-wait
	r.Attrs(func(a slog.Attr) bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.texts = append(h.texts, a.Value.String())
		return true
	})
	return nil
}

func (h *heard) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.texts)
}

// TestMessages compares the log messages of a program in the kernel with those of the interpreter.
// If the log is blocked, the ring fills up. The switch must then count lost messages, and packets
// must pass as before.
func TestMessages(t *testing.T) {
	prog := readProgram(t, "../stf/testdata/stateful.json")
	frame := func(op byte, index uint16, value uint64) []byte {
		b := append([]byte{op}, binary.BigEndian.AppendUint16(nil, index)...)
		return append(binary.BigEndian.AppendUint64(b, value), make([]byte, 64)...)
	}
	var want []string
	in, err := interp.New(prog, interp.Options{Log: func(s string) { want = append(want, s) }})
	check(t, err)
	frames := [][]byte{frame(9, 7, 1<<40), frame(3, 1, 2), frame(9, 0xffff, 0),
		frame(9, 0, 1<<63|1)}
	for _, f := range frames {
		in.Process(time.Second, 1, f)
	}
	if len(want) != 6 {
		t.Fatalf("the interpreter says %q", want)
	}
	eachHook(t, "kernel", func(t *testing.T, h Hook) {
		for _, specialised := range []bool{false, true} {
			t.Run(fmt.Sprintf("made for its tables %v", specialised), func(t *testing.T) {
				needKernel(t)
				log := &heard{wait: make(chan struct{})}
				close(log.wait)
				d, err := newDevice(Options{captured: true, Hook: h, general: true, Log: slog.New(log)})
				check(t, err)
				t.Cleanup(func() { d.Close() })
				check(t, d.Commit(prog))
				if specialised {
					check(t, d.specialise(true))
				}
				program := func() *ebpf.Program {
					if h == HookXDP {
						return d.pipeline.XDP
					}
					return d.pipeline.TC
				}
				d.PortMap.SetPort(1, 1)
				for _, f := range frames {
					_, err := program().Run(&ebpf.RunOptions{Data: f})
					check(t, err)
				}
				for begun := time.Now(); len(log.all()) < len(want) && time.Since(begun) < 20*time.Second; {
					time.Sleep(5 * time.Millisecond)
				}
				if got := log.all(); !slices.Equal(got, want) {
					t.Fatalf("the kernel says\n%s\nand the interpreter\n%s", strings.Join(got, "\n"),
						strings.Join(want, "\n"))
				}
				still := make(chan struct{})
				log.mu.Lock()
				log.wait = still
				log.mu.Unlock()
				for range 6000 {
					_, err := program().Run(&ebpf.RunOptions{Data: frames[0]})
					check(t, err)
				}
				lost := d.pipeline.LostMessages()
				if lost == 0 || lost >= 12000 {
					t.Errorf("of 12000 messages %d were lost", lost)
				}
				close(still)
				total := len(want) + 12000 - int(lost)
				for begun := time.Now(); len(log.all()) < total && time.Since(begun) < 20*time.Second; {
					time.Sleep(5 * time.Millisecond)
				}
				if got := len(log.all()); got != total {
					t.Errorf("%d messages were logged, not %d", got, total)
				}
			})
		}
	})
}
