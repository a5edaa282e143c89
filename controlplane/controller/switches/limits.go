package switches

import (
	"context"
	"sync"
)

// Limits bounds what all devices of a controller do at the same time. Without them a controller of
// a thousand switches would begin everything at once: requests would wait for each other until they
// are too late, and what chains wait for would wait for what nobody waits for.
type Limits struct {
	setUps chan struct{} // switches that are being set up
	loads  *throttle     // of them, those that get the program, which is megabytes
	parts  chan struct{} // switches that get what no chain waits for (InstallSoon, RefreshLater)
}

// NewLimits returns the limits of a controller.
func NewLimits() *Limits {
	return &Limits{setUps: make(chan struct{}, 64), loads: newThrottle(16), parts: make(chan struct{}, 8)}
}

// throttle bounds how many requests are under way at the same time. If they come too late, more at
// the same time would only make each later still, so each late one halves the bound. Each one in
// time raises it by one.
type throttle struct {
	places chan struct{} // one for each request that may begin

	mu    sync.Mutex
	most  int
	bound int // from 1 to most
	there int // places, including those of requests that are under way
}

func newThrottle(most int) *throttle {
	t := &throttle{places: make(chan struct{}, most), most: most, bound: most}
	t.fill()
	return t
}

func (t *throttle) fill() {
	for ; t.there < t.bound; t.there++ {
		t.places <- struct{}{}
	}
}

// begin waits until a request may begin. The caller must call end.
func (t *throttle) begin(ctx context.Context) error {
	select {
	case <-t.places:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *throttle) end(late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.there--
	if t.bound = min(t.bound+1, t.most); late {
		t.bound = max(t.bound/2, 1)
	}
	t.fill()
}
