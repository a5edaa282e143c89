package runtime

import (
	"log/slog"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmv2json"
	"github.com/netcraq/netcraq/switch/ebpf/attach"
	"github.com/netcraq/netcraq/switch/ebpf/compile/emit"
	"github.com/netcraq/netcraq/switch/ebpf/compile/known"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// TestNothingNew checks that the contents of tables are not computed if programs cannot be compiled
// for any more tables. The entries must not even be read.
func TestNothingNew(t *testing.T) {
	// These entries have no match, so computing their contents would fail.
	entries := func(n int) map[string]*entry {
		m := map[string]*entry{}
		for i := range n {
			m[string(rune('a'+i))] = &entry{}
		}
		return m
	}
	key := bmv2json.Key{Width: 32,
		Field: bmv2json.FieldRef{Header: &bmv2json.Header{}, Field: &bmv2json.Field{}}}
	plan := &memory.TablePlan{Kind: memory.LookupHash,
		Source: &bmv2json.Table{Keys: []bmv2json.Key{key}}}
	if !plan.Knowable() {
		t.Fatal("the table is none that can be known")
	}
	p := &Pipeline{Plan: &memory.Plan{}}
	for name, k := range map[string]struct {
		entries int
		know    knowing
	}{
		"known already":     {3, knowing{used: true}},
		"too many ranges":   {3, knowing{unfit: true}},
		"too many entries":  {known.MostRanges + 1, knowing{}},
		"empty":             {0, knowing{}},
		"changed just now":  {3, knowing{changed: time.Now(), quiet: time.Hour}},
		"changed and known": {3, knowing{used: true, changed: time.Now(), quiet: time.Hour}},
	} {
		p.control = []*table{{TablePlan: plan, p: p, byMatch: entries(k.entries), know: k.know}}
		if got := p.knowable(false); got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	p.control = []*table{{TablePlan: plan, p: p, byMatch: entries(3)}}
	defer func() {
		if recover() == nil {
			t.Error("a table that is to be known was not looked at")
		}
	}()
	p.knowable(false)
}

// TestClosedMeanwhile closes a pipeline, as a commit does, while its program is being recompiled.
// The kernel then refuses the program because its maps are closed. This must not cause a warning.
func TestClosedMeanwhile(t *testing.T) {
	if err := attach.Probe(); err != nil {
		t.Skipf("eBPF is not available: %v", err)
	}
	s, err := NewSwitch(emit.Settings{CPUPort: 510, DropPort: 511}, false, slog.Default(),
		func([]byte) {}, func([]byte) {}, func([]byte) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	defer s.CloseRings()
	prog, err := bmv2json.ReadFile("../testdata/tally.json")
	if err != nil {
		t.Fatal(err)
	}
	p, err := NewPipeline(prog, s)
	if err != nil {
		t.Fatal(err)
	}
	p.Messages = []*bmv2json.Primitive{{}} // the program has a log_msg
	p.Close()
	for _, paths := range []bool{true, false} {
		made, err := p.makeAnew(map[int]known.Table{}, paths)
		if made != nil || err != nil {
			t.Errorf("paths %v: programs %v and the error %.80v", paths, made, err)
		}
	}
	if n := p.LostMessages(); n != 0 {
		t.Errorf("%d messages of a closed pipeline were lost", n)
	}
}
