package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// most is the maximum number of faults that a report lists. Further faults are mostly consequences
// of these.
const most = 20

// grace is how long a server that is cut off may still answer, because it holds a lease.
const grace = 5 * time.Second

// report is the result of checking a history.
type report struct {
	Wrong      []string       `json:"wrong,omitempty"`
	Seconds    float64        `json:"seconds"`
	Operations map[kind]int   `json:"operations"` // answered requests, by kind
	ByServer   map[string]int `json:"byServer"`   // answered requests, by server
	Unanswered int            `json:"unanswered"` // requests whose outcome is not known
	Errors     map[string]int `json:"errors"`     // the most frequent errors
	Changes    int            `json:"changes"`    // changes that watches have reported
	// number of watches, including restarted ones
	Sessions int `json:"sessions"`
	// longest time in seconds in which no server acknowledged a write
	WriteGap float64 `json:"longestWithoutAWrite"`
	// the last mark before the end of that time
	GapAfter string  `json:"afterWhat,omitempty"`
	ListP99  float64 `json:"listP99Ms"`
	// time from a write's answer to its event, at a server without a fault
	LagP50  float64    `json:"watchLagP50Ms"`
	LagP99  float64    `json:"watchLagP99Ms"`
	LagMax  float64    `json:"watchLagMaxMs"`
	Excuses []answered `json:"excuses,omitempty"`
}

// answered counts the answers of a server while its node had a fault (an excuse). It counts only
// requests that began later than grace after the beginning of the fault.
type answered struct {
	Server  string  `json:"server"`
	Seconds float64 `json:"seconds"`
	Reads   int     `json:"reads"`
	Writes  int     `json:"writes"`
	// writes that all other servers acknowledged during the excuse
	Others int `json:"othersWrites"`
	// seconds until another server acknowledged a write; -1 if no other server did
	Resumed float64 `json:"resumed"`
}

func (h *history) report(late time.Duration) report {
	end := h.Ended
	r := report{Seconds: end.Seconds(), Operations: map[kind]int{}, ByServer: map[string]int{},
		Errors: map[string]int{}, Sessions: len(h.Sessions)}
	r.Wrong = h.check(late)
	if len(r.Wrong) > most {
		r.Wrong = append(r.Wrong[:most], "... and more")
	}
	revisions := map[int64]bool{}
	for _, s := range h.Sessions {
		for _, e := range s.Events {
			if e.Type != "" {
				revisions[e.Revision] = true
			}
		}
	}
	r.Changes = len(revisions)
	var acknowledged, lists []time.Duration
	for _, o := range h.Operations {
		if o.Outcome == unknown {
			r.Unanswered++
			r.Errors[brief(o.Error)]++
			continue
		}
		r.Operations[o.Kind]++
		r.ByServer[o.Server]++
		if o.Kind == list {
			lists = append(lists, o.End-o.Begin)
		}
		if o.Kind.writes() && o.Outcome == done {
			acknowledged = append(acknowledged, o.End)
		}
	}
	r.ListP99 = milliseconds(quantile(lists, 0.99))
	slices.Sort(acknowledged)
	for i := 1; i < len(acknowledged); i++ {
		if gap := (acknowledged[i] - acknowledged[i-1]).Seconds(); gap > r.WriteGap {
			r.WriteGap, r.GapAfter = gap, ""
			if m := h.marked(acknowledged[i]); m.Text != "" {
				r.GapAfter = fmt.Sprintf("%s, from %.1f s to %.1f s after it", m.Text,
					(acknowledged[i-1] - m.At).Seconds(), (acknowledged[i] - m.At).Seconds())
			}
		}
	}
	var lags []time.Duration
	for _, l := range h.lags(late) {
		if !l.excused {
			lags = append(lags, l.took)
		}
	}
	r.LagP50, r.LagP99, r.LagMax = milliseconds(quantile(lags, 0.5)),
		milliseconds(quantile(lags, 0.99)), milliseconds(quantile(lags, 1))
	for _, e := range h.Excuses {
		if e.To < 0 {
			e.To = end
		}
		r.Excuses = append(r.Excuses, h.within(e))
	}
	return r
}

func (h *history) within(e excuse) answered {
	a := answered{Server: e.Server, Seconds: (e.To - e.From).Seconds(), Resumed: -1}
	for _, o := range h.Operations {
		if o.Outcome == unknown || o.Begin < e.From || o.End > e.To {
			continue
		}
		switch {
		case o.Server != e.Server:
			if o.Kind.writes() && o.Outcome == done {
				a.Others++
				if took := (o.End - e.From).Seconds(); a.Resumed < 0 || took < a.Resumed {
					a.Resumed = took
				}
			}
		case o.Begin < e.From+grace:
		case o.Kind.writes():
			a.Writes++
		default:
			a.Reads++
		}
	}
	return a
}

// brief returns the part that similar errors have in common: the text after the last colon that is
// followed by a space.
func brief(text string) string {
	for i := len(text) - 2; i > 0; i-- {
		if text[i] == ':' && text[i+1] == ' ' {
			return text[i+2:]
		}
	}
	return text
}

func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	slices.SortFunc(all, cmp.Compare)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

func milliseconds(d time.Duration) float64 {
	if d == math.MaxInt64 {
		return -1
	}
	return math.Round(float64(d)/1e4) / 100
}
