package adminserver

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"

	"github.com/netcraq/netcraq/api/admin"
)

// Replica serves the API of one of several controllers. While another controller leads, Replica
// forwards requests to the leader, so that clients can use any address. Clients authenticate at
// this controller. This controller authenticates at the leader, with the token that all of a
// network's controllers share.
type Replica struct {
	// Token and ReadToken authenticate forwarded requests at the leader. ReadToken is for callers
	// that may only read. It is "" if there is none.
	Token, ReadToken string

	bounded sync.Once
	bodies  *bodies

	mu     sync.Mutex
	leads  http.Handler // serves the API while this controller leads; nil while it stands by
	leader string       // the leader's admin address, if it is known
}

// passedOn is a header of requests that one controller has forwarded to another. They are not
// forwarded again, because otherwise two controllers could forward a request to each other.
const passedOn = "Netcraq-Passed-On"

// Lead makes the Replica serve the API of a backend and its placement from now on. The placement
// may be nil.
func (s *Replica) Lead(b Backend, p Placement) {
	h := Handler(b, p)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leads, s.leader = h, ""
}

// StandBy makes the Replica forward requests to a leader's admin address (HOST:PORT) from now on.
// leader is "" if no leader is known.
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
		case r.URL.Path == "/readyz" || r.URL.Path == "/metrics" || leader == "" || r.Header.Get(passedOn) != "":
			fail(w, admin.Errorf(admin.CodeUnavailable, "this controller stands by: another one leads%s", at(leader)))
		default:
			s.bounded.Do(func() { s.bodies = newBodies() })
			s.bodies.limit(keysBody, s.pass(leader)).ServeHTTP(w, r)
		}
	})).ServeHTTP(w, r)
}

// pass returns a handler that forwards requests to a leader.
func (s *Replica) pass(leader string) http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.SetURL(&url.URL{Scheme: "http", Host: leader})
			p.Out.Host = leader
			p.Out.Header.Set(passedOn, "1")
			caller, named := CallerFrom(p.In.Context())
			if token := map[bool]string{true: s.ReadToken, false: s.Token}[caller.ReadOnly]; named && token != "" {
				p.Out.Header.Set("Authorization", "Bearer "+token)
			}
		},
		FlushInterval: -1, // forward events immediately
		Transport:     toLeaders,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			fail(w, admin.Errorf(admin.CodeUnavailable, "this controller stands by, and the one that leads (%s) does not answer: %v", leader, err))
		},
	}
}

// toLeaders keeps no idle connections, because leaders change.
var toLeaders = &http.Transport{DisableKeepAlives: true}

func at(address string) string {
	if address == "" {
		return ", or none as yet"
	}
	return " (" + address + ")"
}
