package target

import "time"

// Ager is a [Pipeline] whose entries can have idle timeouts, in tables for which the program allows
// them (Table.SupportTimeout). Times are on the device's clock ([Device.Now]).
type Ager interface {
	// SetIdleTimeout sets the idle timeout of the entry with the same match as e. The entry is idle
	// if no packet hits it for this time. A timeout of 0 means never. The entry counts as hit now.
	// The error wraps ErrUnsupported if the table does not support timeouts.
	SetIdleTimeout(table string, e *TableEntry, timeout, now time.Duration) error
	// IdleTimeout returns an entry's idle timeout, and the time since a packet last hit the entry.
	// If the table supports timeouts, it also works for an entry without a timeout.
	IdleTimeout(table string, e *TableEntry, now time.Duration) (timeout, since time.Duration,
		err error)
	// Idle returns the entries that are idle at the time now. It returns an entry again each time
	// that the timeout has passed once more without a packet. any reports whether any entry has a
	// timeout.
	Idle(now time.Duration) (entries []IdleEntry, any bool)
}

// IdleEntry is an entry that no packet has hit for its idle timeout.
type IdleEntry struct {
	Table   string
	Entry   TableEntry
	Timeout time.Duration
	// Again is set if Idle has returned the entry before, and no packet has hit it since then.
	Again bool
}

// Ageing is the data that an engine stores about an entry's idle timeout. Times are on the device's
// clock.
type Ageing struct {
	Timeout time.Duration // 0 if there is no timeout
	Hit     time.Duration // when the last packet hit the entry, or the timeout was set
	told    time.Duration // when Due last reported that the timeout has passed
}

// Due reports whether the timeout has passed both since the last packet and since the last report.
// again is set if no packet has hit the entry since the last report.
func (a *Ageing) Due(now time.Duration) (due, again bool) {
	if now-max(a.Hit, a.told) < a.Timeout {
		return false, false
	}
	again = a.told > a.Hit
	a.told = now
	return true, again
}
