package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"
)

// most is how many faults of a history are told; the rest is consequences, mostly.
const most = 20

// grace is how long a server that is cut off may continue answering what it holds a lease for.
const grace = 5 * time.Second

// report is what came of a history.
type report struct {
	Wrong      []string       `json:"wrong,omitempty"`
	Seconds    float64        `json:"seconds"`
	Operations map[kind]int   `json:"operations"`           // with an answer
	ByServer   map[string]int `json:"byServer"`             // ... of each server
	Unanswered int            `json:"unanswered"`           // outcomes that nobody told
	Errors     map[string]int `json:"errors"`               // the most frequent ones
	Changes    int            `json:"changes"`              // that watches told
	Sessions   int            `json:"sessions"`             // watches, with those that were begun again
	WriteGap   float64        `json:"longestWithoutAWrite"` // seconds in which no server acknowledged one
	GapAfter   string         `json:"afterWhat,omitempty"`  // ... and what had been done last before its end
	ListP99    float64        `json:"listP99Ms"`
	LagP50     float64        `json:"watchLagP50Ms"` // from a write's answer to the watch of any server, without faults on its node
	LagP99     float64        `json:"watchLagP99Ms"`
	LagMax     float64        `json:"watchLagMaxMs"`
	Excuses    []answered     `json:"excuses,omitempty"`
}

// answered is what a server has answered while it was excused, to requests that were made a while
// after that began.
type answered struct {
	Server  string  `json:"server"`
	Seconds float64 `json:"seconds"`
	Reads   int     `json:"reads"`
	Writes  int     `json:"writes"`
	Others  int     `json:"othersWrites"` // acknowledged by all other servers in that time
	Resumed float64 `json:"resumed"`      // seconds until one of those did, from its beginning on; -1: none
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

// brief is what errors of one sort have in common: the end of them, after the last colon that is
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
