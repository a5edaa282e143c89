package ebpf

import (
	"errors"

	"github.com/netcraq/netcraq/switch/ebpf/runtime"
	"github.com/netcraq/netcraq/switch/target"
)

// specialise replaces the running program by one that is compiled for the tables' content, if the
// content has changed. Both programs share the state and have the same effect, and a packet passes
// only one of them. If now is set, specialise does not wait until tables have stopped changing.
func (d *device) specialise(now bool) error {
	p := d.committed.Load()
	if p == nil {
		return nil
	}
	next, err := p.Specialise(now)
	if next == nil || err != nil {
		return err
	}
	d.swapping.Lock()
	defer d.swapping.Unlock()
	// A program without stripes must not run while packets of another program lock stripes.
	if !next.Striped {
		if err := p.SetStripes(false); err != nil && !errors.Is(err, target.ErrNoPipeline) {
			next.Close()
			return err
		}
	}
	d.mu.Lock()
	if d.closed || d.pipeline != p {
		d.mu.Unlock()
		next.Close()
		return nil
	}
	var old *runtime.Specialised
	// Packet-outs run on the same thread, so no packet-out is using the old program at this point.
	_ = d.netns.Do(func() error { old = p.Replace(next); return nil })
	var finishes []func()
	for _, q := range d.ports {
		finish, e := d.attach(q, p)
		finishes, err = append(finishes, finish), errors.Join(err, e)
	}
	d.mu.Unlock()
	runtime.WaitForPackets()
	_ = d.netns.Do(func() error {
		for _, finish := range finishes {
			finish()
		}
		return nil
	})
	// If a port could not get the new program, the kernel still keeps the old program for that
	// port.
	old.Close()
	if err != nil && !old.Striped {
		p.StayWithOneLock()
	}
	return err
}

// stripeIfMeeting makes packets lock stripes of registers instead of all registers, if packets have
// waited for each other.
func (d *device) stripeIfMeeting() error {
	p := d.committed.Load()
	if p == nil || d.stripesSet.Load() {
		return nil
	}
	d.swapping.Lock()
	defer d.swapping.Unlock()
	striped, err := p.StripeIfMeeting()
	if striped && err == nil {
		d.log.Info("packets meet at the registers: they are locked by stripes from now on")
	}
	return err
}
