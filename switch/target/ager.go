package target

import "time"

// Ager is a [Pipeline] whose entries can have idle timeouts, in tables of which the program says so
// (Table.SupportTimeout). Times are of the device's clock ([Device.Now]).
type Ager interface {
	// SetIdleTimeout sets after how long without a packet the entry with e's match is idle; 0: it
	// never is. The time begins anew. The error wraps ErrUnsupported where the table has no
	// timeouts.
	SetIdleTimeout(table string, e *TableEntry, timeout, now time.Duration) error
	// IdleTimeout returns an entry's timeout, and for how long no packet has hit it.
	IdleTimeout(table string, e *TableEntry, now time.Duration) (timeout, since time.Duration,
		err error)
	// Idle returns the entries that are idle by now and have not been returned since a packet hit
	// them or their timeout was set, and reports whether any entry has a timeout.
	Idle(now time.Duration) (entries []IdleEntry, any bool)
}

// IdleEntry is an entry that no packet has hit for its timeout.
type IdleEntry struct {
	Table   string
	Entry   TableEntry
	Timeout time.Duration
}
