package reconcilers

import (
	"testing"
)

func TestReason(t *testing.T) {
	for kind, want := range map[string]string{"chain.ready": "ChainReady", "chain.lost-member": "ChainLostMember"} {
		if got := reason(kind); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}
