package admin

import (
	"net/http"
	"sync"

	"github.com/netcraq/netcraq/controlplane/admin/api"
)

// Replica serves the API of a controller of which there are several: while another leads, requests are sent on to that one (307), so that any address will do
// for those who ask.
type Replica struct {
	mu     sync.Mutex
	leads  http.Handler // nil: it stands by
	leader string       // the leader's admin address, where that is known
}

// Lead serves the API of a backend, and of its placement (nil: it has none), from now on.
func (s *Replica) Lead(b Backend, p Placement) {
	h := Handler(b, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.leader = h, ""
}

// StandBy sends requests on to a leader's admin address from now on; "": none is known.
func (s *Replica) StandBy(leader string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.leader = nil, leader
}

// ServeHTTP implements http.Handler.
func (s *Replica) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	leads, leader := s.leads, s.leader
	s.mu.Unlock()
	if leads != nil {
		leads.ServeHTTP(w, r)
		return
	}
	onlyLocal(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/healthz":
			answer(func(*http.Request) (any, error) { return map[string]string{"status": "standing by"}, nil }).ServeHTTP(w, r)
		case r.URL.Path == "/readyz" || r.URL.Path == "/metrics" || leader == "":
			fail(w, api.Errorf(api.CodeUnavailable, "this controller stands by: another one leads%s", at(leader)))
		default:
			http.Redirect(w, r, "http://"+leader+r.URL.RequestURI(), http.StatusTemporaryRedirect)
		}
	})).ServeHTTP(w, r)
}

func at(address string) string {
	if address == "" {
		return ", or none as yet"
	}
	return " (" + address + ")"
}
