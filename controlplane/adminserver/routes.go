package adminserver

import (
	"net/http"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/api/admin"
)

// route is one method and path of the API. It has the handler, and the data for its entry in
// docs/reference/admin-api.yaml.
type route struct {
	method, path string // the path is in http.ServeMux's form
	id           string // the operation's name in generated clients
	group        string // name of one of the groups
	does         string // description of the route, a sentence
	parameters   []parameter
	body         any // a value of the body's type; nil if the route takes no body
	// answer is a value of the answer's type. If it is nil, the route answers with status 204.
	answer any
	// codes lists the error codes of this route, in addition to those of every route.
	codes []string
	// open says that the route needs no token over TCP.
	open bool
	// bodyLimit is the body's limit in bytes. If it is 0, POST and PUT have the limit smallBody,
	// and other methods take no body.
	bodyLimit int64

	// Exactly one of the following functions serves the route, unless the Server itself does.
	serve  func(*server, *http.Request) (any, error) // returns the answer, which is sent as JSON
	stream func(*server) http.Handler                // writes an answer that is not JSON
	media  string                                    // the Content-Type of the answer that stream writes
}

// parameter is a parameter of a route's query or header.
type parameter struct {
	name, in, means string
	value           any // an example of the parameter's type
	required        bool
}

// oneOf is the type of a body or an answer that has one of several types. A nil element is JSON's
// null.
type oneOf []any

// many is the type of an answer that is a list in which entries may carry errors. The answer's
// status is 207 if any entry has an error.
type many struct{ list any }

// groups lists the parts of the API, in the order of the reference.
var groups = []struct{ name, title, does string }{
	{"sessions", "Sessions and watches", "A client of the data plane leases sessions to write with, and keeps the lease alive. Watches tell " +
		"it of commits."},
	{"keys", "Keys", "Keys by name, in all chains. Clients of the data plane find the KEY_ID of a name here."},
	{"chains", "Chains", "Chains, their members, and the keys of one chain."},
	{"switches", "Switches", "Switches and what they count."},
	{"placement", "Placement of etcd's keys", "Which keys of etcd the network serves, and why. These answer 412 `failed_precondition` if the " +
		"controller places no keys of etcd."},
	{"controller", "The controller", "The controller itself: events, health, metrics, and a link to its page."},
}

// pathParameters describes the names in braces in the routes' paths.
var pathParameters = map[string]string{
	"chain":  "The chain's name or id.",
	"key":    "The key's name, or its KEY_ID, decimal or hexadecimal with 0x. A `/` is written as `%2F`.",
	"name":   "The key's name. A `/` is written as `%2F`.",
	"lease":  "The lease, as the answer of `POST /v1/sessions` has it.",
	"switch": "The switch's name.",
}

var withState = parameter{name: "state", in: "query", value: false,
	means: "Whether to fetch what each member of the chain holds for the key."}

// changeCodes lists the error codes of changes that involve switches.
var changeCodes = []string{admin.CodeNotFound, admin.CodeFailedPrecondition, admin.CodeUnavailable,
	admin.CodeDeadlineExceeded}

// routes lists all routes of the API. Handler registers only these routes and the web page.
var routes = slices.Concat(sessionRoutes, keyRoutes, chainRoutes, switchRoutes, placementRoutes, controllerRoutes)

var sessionRoutes = []route{
	{method: "POST", path: "/v1/sessions", id: "openSessions", group: "sessions",
		does: "Lease session ids for a client.",
		body: admin.SessionsRequest{}, answer: admin.Sessions{},
		codes: []string{admin.CodeResourceExhausted, admin.CodeUnavailable, admin.CodeDeadlineExceeded},
		serve: (*server).openSessions},
	{method: "PUT", path: "/v1/sessions/{lease}", id: "keepSessions", group: "sessions",
		does:   "Keep a lease alive for another `ttlSeconds`.",
		answer: admin.Sessions{}, codes: []string{admin.CodeNotFound},
		serve: func(s *server, r *http.Request) (any, error) {
			return s.b.KeepSessions(r.Context(), r.PathValue("lease"))
		}},
	{method: "DELETE", path: "/v1/sessions/{lease}", id: "closeSessions", group: "sessions",
		does:  "Give a lease back. The client sends no request of its sessions after that.",
		codes: []string{admin.CodeNotFound},
		serve: func(s *server, r *http.Request) (any, error) {
			return nil, s.b.CloseSessions(r.Context(), r.PathValue("lease"))
		}},
	{method: "PUT", path: "/v1/watches", id: "watch", group: "sessions",
		does: "Let the switches notify a server of what is committed of keys. The request replaces the server's earlier one.",
		body: admin.WatchRequest{}, answer: admin.Watch{},
		codes: []string{admin.CodeFailedPrecondition, admin.CodeUnavailable},
		serve: (*server).watch},
}

var keyRoutes = []route{
	{method: "GET", path: "/v1/keys", id: "listKeys", group: "keys",
		does: "List the keys of all chains, in the order of their names.",
		parameters: []parameter{
			{name: "prefix", in: "query", value: "", means: "Only keys whose names begin with this."},
			withState,
			{name: "limit", in: "query", value: uint32(1), means: "List so many keys at most. Without it, all are listed."},
			{name: "after", in: "query", value: "", means: "With `limit`: begin with the first name after this one."},
		},
		answer: []admin.Key{}, serve: (*server).directory},
	{method: "POST", path: "/v1/keys", id: "requestKey", group: "keys",
		does: "Add a key in the chain with the most room. If the name has a key already, the answer is that key, with " +
			"`created` false, so it is safe to repeat the request.",
		body: admin.KeyRequest{}, answer: admin.RequestedKey{},
		codes: append([]string{admin.CodeResourceExhausted, admin.CodeQuotaExceeded}, changeCodes...),
		serve: (*server).requestKey},
	{method: "GET", path: "/v1/keys/{name}", id: "findKey", group: "keys",
		does: "Find a key by its exact name.", parameters: []parameter{withState},
		answer: admin.Key{}, codes: []string{admin.CodeNotFound},
		serve: func(s *server, r *http.Request) (any, error) {
			return s.b.Lookup(r.Context(), r.PathValue("name"), wantsState(r))
		}},
	{method: "DELETE", path: "/v1/keys/{name}", id: "removeUnusedKey", group: "keys",
		does: "Remove a key without a value, if its version is still the given one.",
		parameters: []parameter{{name: "version", in: "query", value: decimal(""), required: true,
			means: "The version of the name. 0: nobody has written the key since it was added."}},
		codes: changeCodes, serve: (*server).removeUnused},
}

var chainRoutes = []route{
	{method: "GET", path: "/v1/chains", id: "listChains", group: "chains",
		does: "List the chains.", answer: []admin.Chain{},
		serve: func(s *server, r *http.Request) (any, error) { return s.b.Chains(r.Context()) }},
	{method: "GET", path: "/v1/chains/{chain}", id: "showChain", group: "chains",
		does: "Show one chain.", answer: admin.Chain{}, codes: []string{admin.CodeNotFound},
		serve: func(s *server, r *http.Request) (any, error) { return s.b.Chain(r.Context(), r.PathValue("chain")) }},
	{method: "PUT", path: "/v1/chains/{chain}", id: "changeChain", group: "chains",
		does: "Change a running chain. The answer is the chain after the change.",
		body: admin.ChainChange{}, answer: admin.Chain{}, codes: changeCodes, serve: (*server).changeChain},
	{method: "POST", path: "/v1/chains/{chain}/recover", id: "recoverMember", group: "chains",
		does: "Bring a switch in after a chain's tail. The answer is the chain with the new member.",
		body: admin.Recovery{}, answer: admin.Chain{}, codes: changeCodes, serve: (*server).recoverMember},
	{method: "GET", path: "/v1/chains/{chain}/keys", id: "listChainKeys", group: "chains",
		does: "List the keys of a chain by name.", answer: []admin.Key{}, codes: []string{admin.CodeNotFound},
		serve: func(s *server, r *http.Request) (any, error) { return s.b.Keys(r.Context(), r.PathValue("chain")) }},
	{method: "POST", path: "/v1/chains/{chain}/keys", id: "addKeys", group: "chains",
		does: "Add one key or a list of keys to a chain. It answers when every member has the first values. In a list, a " +
			"key that cannot be added has its `error` and does not hinder the others; the status is 207 then.",
		body: oneOf{admin.KeySpec{}, []admin.KeySpec{}}, answer: oneOf{admin.Key{}, many{[]admin.Key{}}},
		bodyLimit: keysBody,
		codes:     append([]string{admin.CodeAlreadyExists, admin.CodeResourceExhausted}, changeCodes...),
		serve:     (*server).addKeys},
	{method: "DELETE", path: "/v1/chains/{chain}/keys/{key}", id: "removeKey", group: "chains",
		does: "Delete a key's value through the chain, and remove the key from the network.", codes: changeCodes,
		serve: func(s *server, r *http.Request) (any, error) {
			return nil, s.b.RemoveKey(r.Context(), r.PathValue("chain"), r.PathValue("key"))
		}},
	{method: "POST", path: "/v1/chains/{chain}/keys/{key}/move", id: "moveKey", group: "chains",
		does: "Move a key to another chain. The answer is the key there, with its new KEY_ID.",
		body: admin.Move{}, answer: admin.Key{}, codes: append([]string{admin.CodeResourceExhausted}, changeCodes...),
		serve: (*server).moveKey},
}

var switchRoutes = []route{
	{method: "GET", path: "/v1/switches", id: "listSwitches", group: "switches",
		does: "List the switches by name.", answer: []admin.Switch{},
		serve: func(s *server, r *http.Request) (any, error) { return s.b.Switches(r.Context()) }},
	{method: "GET", path: "/v1/switches/{switch}/counters", id: "showCounters", group: "switches",
		does: "Read the counters of a switch.",
		parameters: []parameter{{name: "slots", in: "query", value: "0",
			means: "`0`: answer with the slots' sums by chain, and leave the slots out."}},
		answer: admin.Counters{}, codes: []string{admin.CodeNotFound, admin.CodeUnavailable},
		serve: (*server).counters},
}

var placementRoutes = []route{
	{method: "GET", path: "/v1/placement", id: "showPlacement", group: "placement",
		does: "Show what is placed and why.", answer: admin.Placement{}, codes: []string{admin.CodeFailedPrecondition},
		serve: placed(func(p Placement, r *http.Request) (any, error) { return p.Show(r.Context()) })},
	{method: "GET", path: "/v1/placement/why", id: "explainPlacement", group: "placement",
		does: "Say why a key of etcd is placed, or why not.",
		parameters: []parameter{{name: "key", in: "query", value: "", required: true,
			means: "The key of etcd, written as text (see `Placement`)."}},
		answer: admin.PlacementKey{}, codes: []string{admin.CodeFailedPrecondition},
		serve: placed(func(p Placement, r *http.Request) (any, error) {
			return p.Why(r.Context(), r.URL.Query().Get("key"))
		})},
	{method: "PUT", path: "/v1/placement/rules", id: "setPlacementRule", group: "placement",
		does: "Record an operator's choice about a key or a prefix, or take one back. The answer for a key says what " +
			"applies to it now. For a prefix it is null.",
		body: admin.PlacementRule{}, answer: oneOf{admin.PlacementKey{}, nil},
		codes: []string{admin.CodeNotFound, admin.CodeFailedPrecondition, admin.CodeUnavailable},
		serve: placed(func(p Placement, r *http.Request) (any, error) {
			rule, err := bodyOf[admin.PlacementRule](r)
			if err != nil {
				return nil, err
			}
			return p.SetRule(r.Context(), rule)
		})},
	{method: "POST", path: "/v1/placement/evictions", id: "evictKey", group: "placement",
		does: "Take a key of etcd out of the network. It answers when that is decided.",
		body: admin.PlacementEviction{}, codes: []string{admin.CodeNotFound, admin.CodeFailedPrecondition},
		serve: placed(func(p Placement, r *http.Request) (any, error) {
			e, err := bodyOf[admin.PlacementEviction](r)
			if err != nil {
				return nil, err
			}
			return nil, p.Evict(r.Context(), e)
		})},
}

var controllerRoutes = []route{
	{method: "GET", path: "/v1/events", id: "followEvents", group: "controller",
		does: "Stream events as server-sent events. The `data` of each is an `Event`.",
		parameters: []parameter{
			{name: "since", in: "query", value: decimal(""),
				means: "Begin after the event of this number. Without it, begin with the first that the controller has."},
			{name: "Last-Event-ID", in: "header", value: decimal(""), means: "The same as `since`, for browsers."},
			{name: "follow", in: "query", value: "0", means: "`0`: end after the events that there are."},
		},
		answer: admin.Event{}, media: "text/event-stream",
		stream: func(s *server) http.Handler { return http.HandlerFunc(s.events) }},
	{method: "POST", path: "/v1/page", id: "openPage", group: "controller",
		does:   "Make a link that lets one browser in to the controller's page. The controller needs an address of TCP.",
		answer: admin.PageLink{}, codes: []string{admin.CodeFailedPrecondition}},
	{method: "GET", path: "/healthz", id: "health", group: "controller", open: true,
		does: "Say that the controller runs.", answer: map[string]string{},
		serve: func(*server, *http.Request) (any, error) { return map[string]string{"status": "ok"}, nil }},
	{method: "GET", path: "/readyz", id: "ready", group: "controller", open: true,
		does: "Say that every chain serves. If one does not, the error names what is missing.", answer: map[string]string{},
		codes: []string{admin.CodeUnavailable},
		serve: func(s *server, r *http.Request) (any, error) {
			return map[string]string{"status": "ready"}, s.b.Ready(r.Context())
		}},
	{method: "GET", path: "/metrics", id: "metrics", group: "controller", open: true,
		does:   "The controller's metrics, in the text format of Prometheus.",
		answer: "", media: "text/plain",
		stream: func(s *server) http.Handler { return timely(s.b.Metrics()) }},
}

// decimal is the type of parameters that are unsigned numbers of 64 bits.
type decimal string

// limit returns the limit of the route's body in bytes.
func (r *route) limit() int64 {
	if r.bodyLimit == 0 && (r.method == http.MethodPost || r.method == http.MethodPut) {
		return smallBody
	}
	return r.bodyLimit
}

// register adds the routes to a mux.
func (s *server) register(mux *http.ServeMux, bounds *bodies) {
	for _, r := range routes {
		var h http.Handler
		switch {
		case r.serve != nil:
			h = answer(func(req *http.Request) (any, error) { return r.serve(s, req) })
		case r.stream != nil:
			h = r.stream(s)
		default: // the Server itself serves this route
			continue
		}
		mux.Handle(r.method+" "+r.path, bounds.limit(r.limit(), h))
	}
}

// openRoutes returns the paths of routes that need no token.
func openRoutes() (paths []string) {
	for _, r := range routes {
		if r.open {
			paths = append(paths, r.path)
		}
	}
	return paths
}

// pathNames returns the names in braces in a route's path.
func (r *route) pathNames() (names []string) {
	for _, segment := range strings.Split(r.path, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			names = append(names, strings.TrimSuffix(name, "}"))
		}
	}
	return names
}
