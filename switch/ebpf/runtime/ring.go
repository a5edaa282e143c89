package runtime

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
)

// Ring is a BPF ring buffer, with the goroutine that reads it.
type Ring struct {
	m      *ebpf.Map
	reader *ringbuf.Reader
	done   sync.WaitGroup
	taken  atomic.Uint64 // number of records that were handled
	seen   atomic.Uint64 // number of records that were read
}

// newRing creates a ring of the given size in bytes, a power of two, and calls handle for each
// record that a program puts into it. handle must not retain the record.
func newRing(name string, bytes uint32, log *slog.Logger, handle func(record []byte)) (*Ring,
	error) {
	m, err := newMapIn(ebpf.MapSpec{Name: name, Type: ebpf.RingBuf, MaxEntries: bytes})
	if err != nil {
		return nil, err
	}
	reader, err := ringbuf.NewReader(m)
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("reading the ring %q: %w", name, err)
	}
	r := &Ring{m: m, reader: reader}
	r.done.Go(func() {
		for {
			rec, err := reader.Read()
			if err != nil {
				if !errors.Is(err, ringbuf.ErrClosed) {
					log.Error("a ring is read no more", "ring", name, "err", err)
				}
				return
			}
			r.seen.Add(1)
			handle(rec.RawSample)
			r.taken.Add(1)
		}
	})
	return r, nil
}

// Pending reports whether a record is waiting or being handled. It may miss a record that is being
// read at this moment.
func (r *Ring) Pending() bool {
	return r.reader.AvailableBytes() > 0 || r.seen.Load() != r.taken.Load()
}

func (r *Ring) close() {
	r.reader.Close()
	r.done.Wait()
	r.m.Close()
}
