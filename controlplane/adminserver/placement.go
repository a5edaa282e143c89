package adminserver

import (
	"net/http"

	"github.com/netcraq/netcraq/api/admin"
)

// placed returns a handler for a route of placement. The handler returns an error if the controller
// has no placement.
func placed(f func(Placement, *http.Request) (any, error)) func(*server, *http.Request) (any, error) {
	return func(s *server, r *http.Request) (any, error) {
		if s.p == nil {
			return nil, admin.Errorf(admin.CodeFailedPrecondition, "this controller places no keys of etcd's: start it with --etcd and --prometheus")
		}
		return f(s.p, r)
	}
}
