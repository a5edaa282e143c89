package streamload

import (
	"bytes"
	"fmt"
	"time"
)

// Work returns a consumer's work on each record. The work has a name: count, filter, words or
// windows. Only one goroutine may call the returned function, which counts its results.
func (m *Meter) Work(name string) (func(record []byte, at time.Time), error) {
	switch name {
	case "count":
		return m.count, nil
	case "filter":
		return m.filter, nil
	case "words":
		return new(words).of(m), nil
	case "windows":
		return new(windows).of(m), nil
	}
	return nil, fmt.Errorf("there is no work %q", name)
}

// count reads each record.
func (m *Meter) count(record []byte, _ time.Time) {
	if len(record) > 0 && record[0] != 0 {
		m.found.Add(1)
	}
}

// filter searches each record for the needle.
func (m *Meter) filter(record []byte, _ time.Time) {
	if bytes.Contains(record, []byte(Needle)) {
		m.found.Add(1)
	}
}

// words counts words.
type words struct{ counts map[string]*uint64 }

func (w *words) of(m *Meter) func([]byte, time.Time) {
	w.counts = map[string]*uint64{}
	return func(record []byte, _ time.Time) { m.found.Add(uint64(w.add(record))) }
}

// add counts the words of a record, and returns their number.
func (w *words) add(record []byte) (n int) {
	for word := range bytes.FieldsSeq(record) {
		if p := w.counts[string(word)]; p != nil { // this lookup allocates no string
			*p++
		} else {
			one := uint64(1)
			w.counts[string(word)] = &one
		}
		n++
	}
	return n
}

// windows counts words in windows of five seconds. A window ends each second. A record belongs to
// the second in which it was appended.
type windows struct {
	seconds [windowSeconds]words
	now     int64 // the newest second of any record
	emitted map[string]uint64
}

const windowSeconds = 5

func (w *windows) of(m *Meter) func([]byte, time.Time) {
	return func(record []byte, at time.Time) { m.found.Add(uint64(w.add(record, at.Unix()))) }
}

func (w *windows) add(record []byte, second int64) int {
	if second > w.now {
		if w.now > 0 {
			w.emit()
		}
		for s := max(w.now+1, second-windowSeconds+1); s <= second; s++ {
			w.seconds[s%windowSeconds] = words{counts: map[string]*uint64{}}
		}
		w.now = second
	}
	if second <= w.now-windowSeconds {
		return 0 // the record is late, because its windows have ended
	}
	return w.seconds[second%windowSeconds].add(record)
}

// emit adds up the counts of the window that has ended.
func (w *windows) emit() {
	w.emitted = map[string]uint64{}
	for _, s := range w.seconds {
		for word, n := range s.counts {
			w.emitted[word] += *n
		}
	}
}
