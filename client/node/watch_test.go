package node

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/client/internal/await"
)

func watchData(r nodeapi.Request) nodeapi.WatchData {
	var d nodeapi.WatchData
	_ = json.Unmarshal(r.Data, &d)
	return d
}

func nextOf(t *testing.T, w *Watch) Event {
	t.Helper()
	e, err := w.Next(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// A resumed watch sends the known versions to the server. Events that the server sends nevertheless
// for those versions are dropped.
func TestWatchIsTakenUp(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		p.more(r.ID, nodeapi.WatchAnswer{Started: true})
		if p.number == 0 {
			p.more(r.ID, nodeapi.WatchAnswer{Events: []nodeapi.Event{{Item: item("a", "1", "1.9")}, {Item: item("b", "1", "1.1")}}})
			return true
		}
		p.more(r.ID, nodeapi.WatchAnswer{Events: []nodeapi.Event{{Item: item("b", "1", "1.1")}, {Item: item("a", "2", "1.10"), Overtaken: 3}}})
		return true
	}
	c := f.start().connect(Config{})
	w, err := c.Watch(soon(t), WatchConfig{Prefix: ptr(""), After: map[string]Version{"z": "5.5"}}, In("other"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := func() Event { t.Helper(); return nextOf(t, w) }
	next()
	if e := next(); e.Key != "b" || string(e.Value) != "1" || e.Version != "1.1" {
		t.Errorf("%+v", e)
	}
	f.peer(0).Close()
	if e := next(); e.Key != "a" || string(e.Value) != "2" || e.Overtaken != 3 {
		t.Errorf("%+v", e)
	}
	again := watchData(f.of(nodeapi.FuncWatch)[1])
	if again.Namespace != "other" || *again.Prefix != "" || len(again.After) != 3 || again.After["a"] != "1.9" ||
		again.After["b"] != "1.1" || again.After["z"] != "5.5" {
		t.Errorf("%+v", again)
	}
	w.Close()
	_, err = w.Next(soon(t))
	wantCode(t, err, CodeClosed)
	await.Until(t, patience, "the server to be told", func() bool { return f.count(nodeapi.FuncCancel) == 1 })
}

// A watch is resumed even if it knows more keys than a watch may name, or more versions than the
// quota allows. It reports nothing twice.
func TestWatchOfManyKeysIsTakenUp(t *testing.T) {
	const keys = 5000
	name := func(i int) string { return fmt.Sprintf("a-key-of-some-length/%04d", i) }
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if r.Func != nodeapi.FuncWatch {
			return false
		}
		d := watchData(r)
		if len(d.After) > nodeapi.MaxWatches || p.number == 2 && len(d.After) > 0 {
			p.fail(r.ID, CodeQuotaExceeded)
			return true
		}
		p.more(r.ID, nodeapi.WatchAnswer{Started: true})
		for i := 0; i < keys; i += 500 {
			var a nodeapi.WatchAnswer
			for j := i; j < i+500; j++ {
				if d.After[name(j)] == "" {
					a.Events = append(a.Events, nodeapi.Event{Item: item(name(j), "1", "1.1")})
				}
			}
			p.more(r.ID, a)
		}
		if p.number > 0 {
			p.more(r.ID, nodeapi.WatchAnswer{Events: []nodeapi.Event{{Item: item("news", "1", fmt.Sprint("1.", p.number))}}})
		}
		return true
	}
	c := f.start().connect(Config{})
	w, err := c.Watch(soon(t), WatchConfig{Prefix: ptr("")})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	next := func() Event { t.Helper(); return nextOf(t, w) }
	for i := range keys {
		if e := next(); e.Key != name(i) {
			t.Fatalf("%d: %+v", i, e)
		}
	}
	for again := range 2 {
		f.peer(again).Close()
		if e := next(); e.Key != "news" || e.Version != Version(fmt.Sprint("1.", again+1)) {
			t.Fatalf("%+v", e)
		}
	}
	if n := len(watchData(f.of(nodeapi.FuncWatch)[1]).After); n == 0 || n > nodeapi.MaxWatches/4 {
		t.Errorf("%d versions went with it", n)
	}
}

// A watch does not remember every key that was ever deleted under its prefix. It still reports no
// old version, and reports no deletion twice while the connection lasts.
func TestWatchForgetsWhatWasDeleted(t *testing.T) {
	const keys = 5 * maxGraves
	name := func(i int) string { return fmt.Sprintf("job/%05d", i) }
	gone := func(key, version string) nodeapi.Event {
		return nodeapi.Event{Item: nodeapi.Item{Key: key, Version: version}}
	}
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if r.Func != nodeapi.FuncWatch {
			return false
		}
		p.more(r.ID, nodeapi.WatchAnswer{Started: true})
		if p.number > 0 {
			// On the second connection, the fake behaves like a server that does not know the
			// watch's versions.
			d := watchData(r)
			var a nodeapi.WatchAnswer
			for _, e := range []nodeapi.Event{gone(name(0), "1.2"), gone(name(keys-1), "1.2"), gone("named", "1.1"),
				{Item: item("stays", "1", "1.1")}, {Item: item(name(1), "2", "1.3")}} {
				if d.After[e.Key] == "" || Version(e.Version).Newer(Version(d.After[e.Key])) {
					a.Events = append(a.Events, e)
				}
			}
			p.more(r.ID, a)
			return true
		}
		p.more(r.ID, nodeapi.WatchAnswer{Events: []nodeapi.Event{{Item: item("stays", "1", "1.1")}, gone("named", "1.1")}})
		for i := 0; i < keys; i += 256 {
			var here, there nodeapi.WatchAnswer
			for j := i; j < i+256; j++ {
				here.Events = append(here.Events, nodeapi.Event{Item: item(name(j), "1", "1.1")})
				there.Events = append(there.Events, gone(name(j), "1.2"))
			}
			p.more(r.ID, here)
			p.more(r.ID, there)
		}
		return true
	}
	w, err := f.start().connect(Config{}).Watch(soon(t), WatchConfig{Keys: []string{"named"}, Prefix: ptr("job/")})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for deleted := -1; deleted < keys; {
		// The watch also reports the named key as deleted, so the count begins at -1.
		if e := nextOf(t, w); !e.Found {
			deleted++
		}
	}
	w.mu.Lock()
	last, graves := len(w.last), len(w.graves)
	w.mu.Unlock()
	if last > maxGraves+2 || graves > maxGraves {
		t.Errorf("%d versions are remembered, of %d deleted keys", last, graves)
	}
	f.peer(0).Close()
	// The first deletion was forgotten, and is reported again. The last deletion is not reported
	// again.
	if e := nextOf(t, w); e.Key != name(0) || e.Found || e.Version != "1.2" {
		t.Errorf("%+v", e)
	}
	for e := nextOf(t, w); ; e = nextOf(t, w) {
		if e.Key == name(1) && e.Version == "1.3" {
			break
		}
		if e.Key == name(keys-1) || e.Key == "named" || e.Key == "stays" {
			t.Errorf("%+v is told again", e)
		}
	}
}

// If a program does not take events, the watch keeps the newest event of each key, with the number
// of skipped events.
func TestWatchKeepsTheNewest(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		switch r.Func {
		case nodeapi.FuncWatch:
			p.more(r.ID, nodeapi.WatchAnswer{Started: true})
			for _, v := range []string{"1.1", "1.2", "1.3"} {
				p.more(r.ID, nodeapi.WatchAnswer{Events: []nodeapi.Event{{Item: item("a", v, v), Overtaken: 1}}})
			}
		}
		return r.Func == nodeapi.FuncWatch
	}
	c := f.start().connect(Config{})
	w, err := c.Watch(soon(t), WatchConfig{Keys: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	// The server answers this call after it has sent all events.
	if _, err := c.Get(soon(t), "x"); err != nil {
		t.Fatal(err)
	}
	e, err := w.Next(soon(t))
	if err != nil || e.Version != "1.3" || e.Overtaken != 5 {
		t.Errorf("%+v, %v", e, err)
	}
}

func TestWatchOfAServerInTrouble(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if r.Func != nodeapi.FuncWatch {
			return false
		}
		switch f.count(nodeapi.FuncWatch) {
		case 1:
			p.more(r.ID, nodeapi.WatchAnswer{Started: true})
			p.fail(r.ID, CodeUnavailable)
		case 2:
			p.answer(r.ID, nodeapi.WatchAnswer{})
		default:
			p.more(r.ID, nodeapi.WatchAnswer{Events: []nodeapi.Event{{Item: item("a", "1", "1.1")}}})
		}
		return true
	}
	c := f.start().connect(Config{})
	w, err := c.Watch(soon(t), WatchConfig{Keys: []string{"a"}})
	if err != nil {
		t.Fatal(err)
	}
	if e, err := w.Next(soon(t)); err != nil || e.Version != "1.1" {
		t.Error(e, err)
	}
}

func TestWatchIsRefused(t *testing.T) {
	f := newFake(t)
	f.hook = func(p *peer, r nodeapi.Request) bool {
		if watchData(r).Keys[0] == "now" {
			p.fail(r.ID, CodePermissionDenied)
			return true
		}
		p.more(r.ID, nodeapi.WatchAnswer{Started: true})
		p.fail(r.ID, CodeQuotaExceeded)
		return true
	}
	c := f.start().connect(Config{})
	_, err := c.Watch(soon(t), WatchConfig{Keys: []string{"now"}})
	wantCode(t, err, CodePermissionDenied)
	w, err := c.Watch(soon(t), WatchConfig{Keys: []string{"later"}})
	if err == nil {
		_, err = w.Next(soon(t))
	}
	wantCode(t, err, CodeQuotaExceeded)
	await.Until(t, patience, "nothing of the watches is left", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.watches)+len(c.calls) == 0
	})
}

func TestServiceWatch(t *testing.T) {
	f := newFake(t)
	one := []Instance{{Instance: "i1", Address: "h:1"}}
	f.hook = func(p *peer, r nodeapi.Request) bool {
		p.more(r.ID, nodeapi.ServiceAnswer{Service: "s", Instances: one})
		if p.number > 0 {
			p.more(r.ID, nodeapi.ServiceAnswer{Service: "s"})
		}
		return true
	}
	c := f.start().connect(Config{})
	w, err := c.WatchService(soon(t), "s")
	if err != nil {
		t.Fatal(err)
	}
	if list, err := w.Next(soon(t)); err != nil || len(list) != 1 || list[0] != one[0] {
		t.Error(list, err)
	}
	f.peer(0).Close()
	if list, err := w.Next(soon(t)); err != nil || len(list) != 0 {
		t.Error(list, err)
	}
	w.Close()
}
