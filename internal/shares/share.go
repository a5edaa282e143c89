// Package shares divides a budget among an unknown number of tenants.
package shares

import "sync"

// Fits reports whether a tenant that has the part own of a budget may get n more. most is the whole
// budget, and all is the sum of all tenants' parts.
//
// A tenant's part may be at most as large as the part of the budget that is still free afterwards.
// So no tenant has more than half of the budget, and a tenant with nothing gets up to half of the
// free part.
func Fits[N int | int64](own, all, n, most N) bool { return own+n <= most-all-n }

// Budget is a budget that tenants share by [Fits]. It is safe for concurrent use.
type Budget struct {
	most int

	mu  sync.Mutex
	all int
	of  map[string]int
}

// New makes a budget of size most.
func New(most int) *Budget { return &Budget{most: most, of: map[string]int{}} }

// Take takes n from the budget for a tenant and returns true, if that fits.
func (b *Budget) Take(tenant string, n int) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !Fits(b.of[tenant], b.all, n, b.most) {
		return false
	}
	b.of[tenant] += n
	b.all += n
	return true
}

// Give gives n back to the budget. The tenant must have taken n before.
func (b *Budget) Give(tenant string, n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.all -= n
	if b.of[tenant] -= n; b.of[tenant] == 0 {
		delete(b.of, tenant)
	}
}
