package target

import "time"

// Ager is a [Pipeline] whose entries can have idle timeouts, in tables for which the program allows
// them (Table.SupportTimeout). Times are by the device's clock ([Device.Now]).
type Ager interface {
	// SetIdleTimeout sets the time without a packet after which the entry with e's match is idle;
	// 0: never. The entry counts as hit now. The error wraps ErrUnsupported if the table has no
	// timeouts.
	SetIdleTimeout(table string, e *TableEntry, timeout, now time.Duration) error
	// IdleTimeout returns an entry's timeout, and the time since a packet last hit it. It works for
	// an entry without a timeout, too, if the table supports timeouts.
	IdleTimeout(table string, e *TableEntry, now time.Duration) (timeout, since time.Duration,
		err error)
	// Idle returns the entries that have been idle for their timeout by now. It returns an entry
	// again each time that the timeout has passed once more without a packet. any reports whether
	// any entry has a timeout.
	Idle(now time.Duration) (entries []IdleEntry, any bool)
}

// IdleEntry is an entry that no packet has hit for its timeout.
type IdleEntry struct {
	Table   string
	Entry   TableEntry
	Timeout time.Duration
	// Again says that Idle has returned the entry before, and no packet has hit it since then.
	Again bool
}

// Ageing is an engine's data about an entry's idle timeout. Times are by the device's clock.
type Ageing struct {
	Timeout time.Duration // 0: none
	Hit     time.Duration // when the last packet hit, or the timeout was set
	told    time.Duration // when Due last reported it
}

// Due reports whether the timeout has passed both since the last packet and since the last report.
// again says that no packet has hit the entry since that report.
func (a *Ageing) Due(now time.Duration) (due, again bool) {
	if now-max(a.Hit, a.told) < a.Timeout {
		return false, false
	}
	again = a.told > a.Hit
	a.told = now
	return true, again
}
