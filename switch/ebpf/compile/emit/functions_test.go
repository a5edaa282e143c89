package emit

import (
	"testing"

	"github.com/netcraq/netcraq/switch/ebpf/ir"
)

// TestEmittedLater checks facts about fields in code that is postponed to a function's end. The
// code after it must not use these facts, because all packets reach that code.
func TestEmittedLater(t *testing.T) {
	tr := &Emitter{}
	known := ir.Facts{8: {Known: true, Value: 3}}
	for range 2 {
		tr.EmitLater(func() {
			if tr.Facts != nil {
				t.Error("it is emitted with what another one knows")
			}
			tr.Facts = known
		})
	}
	tr.FlushLater()
	if tr.Facts != nil || len(tr.later) != 0 {
		t.Errorf("behind them %v is known, and %d are left", tr.Facts, len(tr.later))
	}
}
