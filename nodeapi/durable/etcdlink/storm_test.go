package etcdlink

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc/status"
)

// TestServerAtRandom checks a server that behaves randomly. It answers calls in any order, late, in
// pieces, twice, with padding, for streams that do not exist, and between frames of any kind. Each
// call must end, and no call may get the answer to another call.
func TestServerAtRandom(t *testing.T) {
	var answered atomic.Int32
	for round := range 8 {
		seed := rand.Uint64()
		r := rand.New(rand.NewPCG(seed, 0))
		p, c := newPeer(t, Options{})
		served := make(chan struct{})
		go func() {
			defer close(served)
			p.atRandom(r)
		}()
		var callers sync.WaitGroup
		for i := range 8 {
			callers.Go(func() {
				for n := range 100 {
					key := fmt.Sprintf("%d-%d", i, n)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(20))*time.Millisecond)
					err := c.get(ctx, key, 0)
					cancel()
					if err == nil {
						answered.Add(1)
					}
					if _, ok := status.FromError(err); err != nil && !ok && !errors.Is(err, ErrNotSent) {
						t.Errorf("round %d, seed %d: %v", round, seed, err)
					}
				}
			})
		}
		ended := make(chan error, 1)
		go func() { callers.Wait(); ended <- nil }()
		_ = ends(t, ended)
		c.Close()
		p.nc.Close()
		<-served
	}
	if answered.Load() == 0 {
		t.Error("no call was answered")
	}
	t.Logf("%d calls were answered", answered.Load())
}

// atRandom serves calls in random ways until the connection ends.
func (p *peer) atRandom(r *rand.Rand) {
	var waiting []func()
	keys := map[uint32]string{}
	for {
		f, err := p.framer.ReadFrame()
		if err != nil {
			return
		}
		data, ok := f.(*http2.DataFrame)
		if !ok {
			continue
		}
		id := data.StreamID
		keys[id] = string(data.Data()[7:]) // skip the gRPC prefix, and the tag and length of the field
		if n := len(keys[id]); n > int(data.Data()[6]) {
			keys[id] = keys[id][:data.Data()[6]]
		}
		key := keys[id]
		waiting = append(waiting, func() {
			switch r.IntN(8) {
			case 0:
				_ = p.framer.WriteRSTStream(id, []http2.ErrCode{http2.ErrCodeRefusedStream, http2.ErrCodeNo}[r.IntN(2)])
			case 1:
				p.headers(id, true, ":status", "200", "grpc-status", "14", "grpc-message", "no%")
			case 2:
				p.headers(id, false, ":status", "200")
				_ = p.framer.WriteDataPadded(id, true, []byte{0, 0}, make([]byte, r.IntN(200)))
			case 3:
				p.answer(id, key)
				p.answer(id, key)
			default:
				p.answer(id, key)
			}
		})
		if len(waiting) < 1+r.IntN(4) {
			continue
		}
		r.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		for _, answer := range waiting {
			switch r.IntN(12) {
			case 0:
				_ = p.framer.WritePing(r.IntN(2) == 0, [8]byte{byte(r.Uint32())})
			case 1:
				_ = p.framer.WriteSettings(
					http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(r.IntN(1 << 17))},
					http2.Setting{ID: http2.SettingHeaderTableSize, Val: uint32(r.IntN(8192))},
					http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: uint32(1 + r.IntN(8))})
			case 2:
				_ = p.framer.WriteWindowUpdate(0, 1+r.Uint32()>>12)
			case 3:
				p.answer(2*uint32(r.IntN(1<<20))+1_000_001, "nobody's")
			case 4:
				_ = p.framer.WriteWindowUpdate(id, 1)
			}
			answer()
		}
		waiting = nil
		if r.IntN(300) == 0 {
			_ = p.framer.WriteGoAway(id-2*min(uint32(r.IntN(3)), (id-1)/2), http2.ErrCodeNo, nil)
		}
	}
}
