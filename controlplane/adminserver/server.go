// Package adminserver serves the controller's admin API, which uses HTTP and JSON as package
// api/admin defines them. It only decodes requests, calls the controller and encodes answers. The
// table of routes is in routes.go, and docs/reference/admin-api.yaml is generated from it. GET / is
// a web page for people (package page).
//
// Handler does not authenticate callers. Server does: the kernel identifies the caller at the other
// end of a Unix socket, and a caller over TCP needs a token. (Only Server serves POST /v1/page,
// which makes a link for a browser.) It refuses requests whose Host is a name other than localhost,
// so that no web page can reach the API through a browser (DNS rebinding). It also refuses changes
// that a browser sends for another site's page (cross-site request forgery). Sizes and times of
// bodies are limited, and so is the time that a client takes to read an answer.
package adminserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/adminserver/page"
)

// Backend provides the data of the API. *controller.Controller implements it. Its errors are
// *admin.Error.
type Backend interface {
	Chains(context.Context) ([]admin.Chain, error)
	Chain(ctx context.Context, chain string) (*admin.Chain, error)
	ChangeChain(ctx context.Context, chain string, change admin.ChainChange) (*admin.Chain, error)
	// Recover adds a switch to a chain, after the tail.
	Recover(ctx context.Context, chain, sw string) (*admin.Chain, error)
	Metrics() http.Handler
	Keys(ctx context.Context, chain string) ([]admin.Key, error)
	AddKeys(ctx context.Context, chain string, keys []admin.KeySpec) ([]admin.Key, error)
	RemoveKey(ctx context.Context, chain, nameOrID string) error
	// MoveKey moves a key to another chain, where it gets another KEY_ID.
	MoveKey(ctx context.Context, chain, nameOrID, to string) (*admin.Key, error)
	// RequestKey adds a key in a chain that the controller chooses, unless a key of that name
	// exists.
	RequestKey(context.Context, admin.KeyRequest) (*admin.RequestedKey, error)
	// RemoveUnused removes a key without a value, if the version of its name equals version.
	RemoveUnused(ctx context.Context, name string, version uint64) error
	Directory(ctx context.Context, prefix string, state bool) ([]admin.Key, error)
	Lookup(ctx context.Context, name string, state bool) (*admin.Key, error)
	Switches(context.Context) ([]admin.Switch, error)
	Counters(ctx context.Context, sw string) (*admin.Counters, error)
	OpenSessions(context.Context, admin.SessionsRequest) (*admin.Sessions, error)
	KeepSessions(ctx context.Context, lease string) (*admin.Sessions, error)
	Watch(context.Context, admin.WatchRequest) (*admin.Watch, error)
	CloseSessions(ctx context.Context, lease string) error
	// Events returns the events with numbers above since, and a channel that is closed when another
	// event is added.
	Events(since uint64) ([]admin.Event, <-chan struct{})
	Ready(context.Context) error
}

// Placement provides the data about placement. *placementcontroller.Controller implements it. Its
// errors are *admin.Error.
type Placement interface {
	Show(context.Context) (*admin.Placement, error)
	// Why returns the reason why a key is placed or not.
	Why(ctx context.Context, key string) (*admin.PlacementKey, error)
	SetRule(context.Context, admin.PlacementRule) (*admin.PlacementKey, error)
	Evict(context.Context, admin.PlacementEviction) error
}

// Handler serves the API of a backend, and of its placement. The placement may be nil.
func Handler(b Backend, p Placement) http.Handler { return handler(b, p, newBodies()) }

func handler(b Backend, p Placement, bounds *bodies) http.Handler {
	s := &server{b, p}
	mux := http.NewServeMux()
	s.register(mux, bounds)
	page.Handle(mux)
	mux.Handle("/", bounds.limit(0, answer(func(r *http.Request) (any, error) {
		return nil, admin.Errorf(admin.CodeNotFound, "there is no %s %s in this API", r.Method, r.URL.Path)
	})))
	origin := http.NewCrossOriginProtection()
	origin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e := admin.Errorf(admin.CodeInvalidArgument, "this API takes no changes from the page of another site (%q)", r.Header.Get("Origin"))
		e.Status = http.StatusForbidden
		fail(w, e)
	}))
	return onlyLocal(origin.Handler(mux))
}

// timely limits how long a client may take to read an answer.
func timely(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// fails only with httptest's recorder, which does not support deadlines
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		next.ServeHTTP(w, r)
	})
}

// onlyLocal refuses requests whose Host is a name instead of an address.
func onlyLocal(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// This removes the deadline of the connection's last answer. It fails only with httptest's
		// recorder, which does not support deadlines.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		if !local(r) {
			e := admin.Errorf(admin.CodeInvalidArgument, "this API is not served as %q: use its IP address", r.Host)
			e.Status = http.StatusForbidden
			fail(w, e)
			return
		}
		next.ServeHTTP(w, r)
	})
}

type server struct {
	b Backend
	p Placement // nil if there is no placement
}

// manyResult is the answer to a list of keys. The answer's status says whether all keys were
// placed.
type manyResult []admin.Key

// answer returns a handler that runs f and writes the result as JSON. If the result is nil, the
// status is 204.
func answer(f func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		out, err := f(r)
		if err != nil {
			fail(w, err)
			return
		}
		if out == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		code := http.StatusOK
		if keys, ok := out.(manyResult); ok {
			for _, k := range keys {
				if k.Error != nil {
					code = http.StatusMultiStatus
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		// fails only with httptest's recorder, which does not support deadlines
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(out) // fails if the client has disconnected
	})
}

func fail(w http.ResponseWriter, err error) {
	var e *admin.Error
	if !errors.As(err, &e) {
		e = admin.Errorf(admin.CodeInternal, "%v", err)
	}
	if e.Status == 0 {
		e.Status = admin.StatusOf(e.Code)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(e.Status)
	w.Write(admin.MarshalError(e))
}

// counters returns a switch's counters. With ?slots=0, it adds the counters of slots up by chain.
func (s *server) counters(r *http.Request) (any, error) {
	c, err := s.b.Counters(r.Context(), r.PathValue("switch"))
	if err != nil || r.URL.Query().Get("slots") != "0" {
		return c, err
	}
	short := *c
	short.Slots, short.Chains = nil, c.ByChain()
	return &short, nil
}

// removeUnused removes a key without a value, if the key's version equals the one in ?version=.
func (s *server) removeUnused(r *http.Request) (any, error) {
	version, err := strconv.ParseUint(r.URL.Query().Get("version"), 10, 64)
	if err != nil {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "version: which one must it be? %v", err)
	}
	return nil, s.b.RemoveUnused(r.Context(), r.PathValue("name"), version)
}

func wantsState(r *http.Request) bool {
	on, err := strconv.ParseBool(r.URL.Query().Get("state"))
	return err == nil && on
}

// directory lists keys by their names. It returns all keys, or a page of them.
func (s *server) directory(r *http.Request) (any, error) {
	q := r.URL.Query()
	limit := 0
	if text := q.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "limit is %.20q: pass a number of keys, 1 or more", text)
		}
	}
	keys, err := s.b.Directory(r.Context(), q.Get("prefix"), wantsState(r))
	if err != nil || limit == 0 {
		return keys, err
	}
	return admin.PageOf(keys, q.Get("after"), limit), nil
}

// decode reads a JSON body strictly. An unknown field is an error, because its sender expects an
// effect.
func decode(body []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return admin.Errorf(admin.CodeInvalidArgument, "the request's body: %v", err)
	}
	if d.More() {
		return admin.Errorf(admin.CodeInvalidArgument, "the request's body goes on after its JSON")
	}
	return nil
}

func readBody(r *http.Request) ([]byte, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, admin.Errorf(admin.CodeInvalidArgument, "reading the request's body: %v", err)
	}
	return b, nil
}

// bodyOf decodes a request's JSON body.
func bodyOf[T any](r *http.Request) (what T, err error) {
	b, err := readBody(r)
	if err == nil {
		err = decode(b, &what)
	}
	return what, err
}

func (s *server) changeChain(r *http.Request) (any, error) {
	change, err := bodyOf[admin.ChainChange](r)
	if err != nil {
		return nil, err
	}
	return s.b.ChangeChain(r.Context(), r.PathValue("chain"), change)
}

// recoverMember brings the switch that the body names into a chain.
func (s *server) recoverMember(r *http.Request) (any, error) {
	what, err := bodyOf[admin.Recovery](r)
	if err != nil {
		return nil, err
	}
	return s.b.Recover(r.Context(), r.PathValue("chain"), what.Switch)
}

// moveKey moves a key to the chain that the body names.
func (s *server) moveKey(r *http.Request) (any, error) {
	what, err := bodyOf[admin.Move](r)
	if err != nil {
		return nil, err
	}
	return s.b.MoveKey(r.Context(), r.PathValue("chain"), r.PathValue("key"), what.To)
}

// addKeys adds one key or a list.
func (s *server) addKeys(r *http.Request) (any, error) {
	body, err := readBody(r)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("[")) {
		var one admin.KeySpec
		if err := decode(body, &one); err != nil {
			return nil, err
		}
		keys, err := s.b.AddKeys(r.Context(), r.PathValue("chain"), []admin.KeySpec{one})
		if err != nil {
			return nil, err
		}
		if e := keys[0].Error; e != nil {
			return nil, e
		}
		return keys[0], nil
	}
	var many []admin.KeySpec
	if err := decode(body, &many); err != nil {
		return nil, err
	}
	keys, err := s.b.AddKeys(r.Context(), r.PathValue("chain"), many)
	return manyResult(keys), err
}

// requestKey adds a key in a chain with room.
func (s *server) requestKey(r *http.Request) (any, error) {
	what, err := bodyOf[admin.KeyRequest](r)
	if err != nil {
		return nil, err
	}
	return s.b.RequestKey(r.Context(), what)
}

func (s *server) openSessions(r *http.Request) (any, error) {
	req, err := bodyOf[admin.SessionsRequest](r)
	if err != nil {
		return nil, err
	}
	return s.b.OpenSessions(r.Context(), req)
}

func (s *server) watch(r *http.Request) (any, error) {
	what, err := bodyOf[admin.WatchRequest](r)
	if err != nil {
		return nil, err
	}
	return s.b.Watch(r.Context(), what)
}

// keepAlive is the interval between signs of life in an idle event stream.
const keepAlive = 15 * time.Second

// events streams server-sent events: the stored events after ?since=ID or the Last-Event-ID header
// and then, unless ?follow=0, new events.
func (s *server) events(w http.ResponseWriter, r *http.Request) {
	since := uint64(0)
	from := r.URL.Query().Get("since")
	if from == "" {
		from = r.Header.Get("Last-Event-ID")
	}
	if from != "" {
		var err error
		if since, err = strconv.ParseUint(from, 10, 64); err != nil {
			fail(w, admin.Errorf(admin.CodeInvalidArgument, "since: %q is not an event's number", from))
			return
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	control := http.NewResponseController(w)
	flush := control.Flush
	for {
		// ends the stream if the client does not read
		_ = control.SetWriteDeadline(time.Now().Add(keepAlive + answerTime))
		events, more := s.b.Events(since)
		for _, e := range events {
			data, err := json.Marshal(e)
			if err != nil {
				return
			}
			if _, err := fmt.Fprintf(w, "id: %d\nevent: %s\ndata: %s\n\n", e.ID, e.Type, data); err != nil {
				return
			}
			since = e.ID
		}
		if flush() != nil || r.URL.Query().Get("follow") == "0" {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-more:
		case <-time.After(keepAlive):
			if _, err := io.WriteString(w, ": still here\n\n"); err != nil {
				return
			}
		}
	}
}
