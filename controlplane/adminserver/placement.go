package adminserver

import (
	"net/http"

	"github.com/netcraq/netcraq/api/admin"
)

// placement adds what is served of placement.
func placement(p Placement, handle func(pattern string, f func(*http.Request) (any, error))) {
	on := func(f func(*http.Request) (any, error)) func(*http.Request) (any, error) {
		return func(r *http.Request) (any, error) {
			if p == nil {
				return nil, admin.Errorf(admin.CodeFailedPrecondition, "this controller places no keys of etcd's: start it with --etcd and --prometheus")
			}
			return f(r)
		}
	}
	handle("GET /v1/placement", on(func(r *http.Request) (any, error) { return p.Show(r.Context()) }))
	handle("GET /v1/placement/why", on(func(r *http.Request) (any, error) { return p.Why(r.Context(), r.URL.Query().Get("key")) }))
	handle("POST /v1/placement/evictions", on(func(r *http.Request) (any, error) {
		e, err := bodyOf[admin.PlacementEviction](r)
		if err != nil {
			return nil, err
		}
		return nil, p.Evict(r.Context(), e)
	}))
	handle("PUT /v1/placement/rules", on(func(r *http.Request) (any, error) {
		rule, err := bodyOf[admin.PlacementRule](r)
		if err != nil {
			return nil, err
		}
		return p.SetRule(r.Context(), rule)
	}))
}
