package shares

import (
	"fmt"
	"testing"
)

// TestBudget: however many tenants have taken their maximum, another tenant still gets a part. A
// single tenant gets half of the budget.
func TestBudget(t *testing.T) {
	b := New(1000)
	got := map[string]int{}
	for i := range 8 {
		tenant := fmt.Sprint(i)
		for b.Take(tenant, 1) {
			got[tenant]++
		}
		if got[tenant] < 1000>>(i+1) || got[tenant] > 500 {
			t.Errorf("tenant %d gets %d", i, got[tenant])
		}
	}
	for tenant, n := range got {
		b.Give(tenant, n)
	}
	if b.Take("x", 501) || !b.Take("x", 500) || b.Take("y", 251) || !b.Take("y", 250) {
		t.Error("what was given back is not there")
	}
}
