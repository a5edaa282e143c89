package logbook

import (
	"fmt"
	"io"
	"time"

	"github.com/netcraq/netcraq/api/wire"
)

// Line is one line of a timeline: when, who, what.
type Line struct {
	At   time.Duration
	Who  string
	What string
	Key  wire.Key // that it is about; 0: it is of interest whatever the key
	// Lease: it is about the renewal of a lease, of which there are many.
	Lease bool
}

// String is the line as it is printed.
func (l Line) String() string {
	return fmt.Sprintf("%10.3fms  %-10s %s", float64(l.At)/float64(time.Millisecond), l.Who, l.What)
}

// WriteTimeline writes the lines that are about a key (0: all of them).
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
