package streamload

import (
	"maps"
	"testing"
)

// TestWindows: a window contains exactly the records that were appended in its five seconds. A
// record that comes after the end of its windows is not counted.
func TestWindows(t *testing.T) {
	var w windows
	for _, r := range []struct {
		second int64
		text   string
		want   int
	}{{100, "a b", 2}, {101, "a", 1}, {104, "c", 1}, {103, "b", 1}, {105, "d", 1}} {
		if n := w.add([]byte(r.text), r.second); n != r.want {
			t.Errorf("%+v: %d words", r, n)
		}
	}
	// This is the window of the seconds 100 to 104.
	if want := map[string]uint64{"a": 2, "b": 2, "c": 1}; !maps.Equal(w.emitted, want) {
		t.Errorf("%v, want %v", w.emitted, want)
	}
	if n := w.add([]byte("late"), 100); n != 0 {
		t.Errorf("%d late words", n)
	}
	w.add([]byte("e"), 108)
	// This is the window of the seconds 101 to 105.
	if want := map[string]uint64{"a": 1, "b": 1, "c": 1, "d": 1}; !maps.Equal(w.emitted, want) {
		t.Errorf("%v, want %v", w.emitted, want)
	}
	w.add([]byte("f"), 120)
	w.add([]byte("g"), 121)
	if want := map[string]uint64{"f": 1}; !maps.Equal(w.emitted, want) { // this is the window of the seconds 116 to 120
		t.Errorf("%v, want %v", w.emitted, want)
	}
}
