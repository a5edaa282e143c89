package logbook

import (
	"fmt"
	"io"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Line is one line of a timeline. It says when who did what.
type Line struct {
	At   time.Duration
	Who  string
	What string
	Key  wire.Key // the key that the line is about; a line with 0 is shown for every key
	// Lease says that the line is about the renewal of a lease. There are many such lines.
	Lease bool
}

// String returns the line as it is printed.
func (l Line) String() string {
	return fmt.Sprintf("%10.3fms  %-10s %s", float64(l.At)/float64(time.Millisecond), l.Who, l.What)
}

// WriteTimeline writes the lines about a key, and the lines about no key. If key is 0, it writes
// all lines.
func WriteTimeline(w io.Writer, lines []Line, key wire.Key) error {
	for _, l := range lines {
		if key != 0 && (l.Lease || l.Key != 0 && l.Key != key) {
			continue
		}
		if _, err := fmt.Fprintln(w, l); err != nil {
			return err
		}
	}
	return nil
}
