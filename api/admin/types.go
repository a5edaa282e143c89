// Package admin is the controller's admin API for its callers: the JSON types and a client.
//
// The API is HTTP and JSON over a Unix socket (SystemSocket), and over TCP for callers with a
// token. Operators read the members of a chain, the keys in the network, and the counters of
// switches; and they change these, for example by adding or removing a key or changing a lease.
// Clients of the data plane get from it what they cannot know otherwise: the service address of a
// chain, the KEY_ID of an etcd key, and a session id. Reads and writes of values do not pass
// through this API: they are packets to the switches.
//
// A failure is an HTTP status of 400 or above and the body {"error": {"code": "...", "message":
// "..."}}; the client returns it as *Error.
package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// DefaultAddress is the TCP address at which the controller serves the admin API for browsers and
// Prometheus, unless --admin names another.
const DefaultAddress = "127.0.0.1:20036"

// The default places of the controller's socket and the tokens. The folder is not the node agent's
// own, which only root can enter.
const (
	SystemFolder = "/run/netcraq-admin"
	SystemSocket = "unix://" + SystemFolder + "/controller.sock"
)

// folder returns the system's folder. If the user is not root, and no system controller runs, it
// returns a folder of this user.
func folder() string {
	own := os.Getenv("XDG_RUNTIME_DIR")
	if os.Geteuid() == 0 || own == "" {
		return SystemFolder
	}
	if _, err := os.Stat(strings.TrimPrefix(SystemSocket, "unix://")); err == nil {
		return SystemFolder
	}
	return filepath.Join(own, "netcraq-admin")
}

// DefaultSocket is the default path of the controller's socket, for controllers and clients.
func DefaultSocket() string { return "unix://" + filepath.Join(folder(), "controller.sock") }

// DefaultToken and DefaultReadToken are the files with the tokens for TCP.
func DefaultToken() string     { return filepath.Join(folder(), "token") }
func DefaultReadToken() string { return filepath.Join(folder(), "read-token") }

// PageLink is the answer to POST /v1/page: a login link for the page, which works once, for the
// given number of seconds.
type PageLink struct {
	URL     string `json:"url"`     // the link, with a code that works once
	Seconds int    `json:"seconds"` // how long the code works
}

// Chain is one chain (virtual group) with its members in order.
type Chain struct {
	Name           string `json:"name"`           // its name in the topology
	ID             uint8  `json:"id"`             // the top byte of the KEY_ID of each of its keys
	Epoch          uint16 `json:"epoch"`          // epoch of the configuration that is installed or being installed
	ServiceAddress string `json:"serviceAddress"` // the IPv4 address that clients send to; every member accepts it
	// read lease; 0: the paper's fail-stop assumption, members serve without one
	LeaseMillis int `json:"leaseMillis"`
	// LeaseGivenMillis is the length of the leases that the controller gives at present, if it is
	// less than LeaseMillis because nothing is late (shortLeaseMillis in the topology file). 0: the
	// controller gives leases of LeaseMillis.
	LeaseGivenMillis int  `json:"leaseGivenMillis,omitempty"`
	Frozen           bool `json:"frozen"` // members drop writes (the head answers RETRY)
	Slots            int  `json:"slots"`  // slots that this chain may place keys in
	Keys             int  `json:"keys"`   // number of keys placed
	// every member has the configuration and, where leases are used, a live one
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it is not ready
	// the largest value that the switches' program holds (VALUE_BITS/8)
	ValueBytes int      `json:"valueBytes"`
	Members    []Member `json:"members"` // head first, tail last
	// VersionWarning is empty unless the versions of two programs (members of the chain, or the
	// controller) are further apart than is tested. Then it names the two, and says what to
	// upgrade.
	VersionWarning string `json:"versionWarning,omitempty"`
	// Length is how many members the chain should have. A chain with fewer members is short, but
	// serves. 0: this version of the controller does not report it.
	Length int `json:"length,omitempty"`
	// Missing lists the switches that should be members and are not. It is empty if the chain is
	// not short, or if its members are chosen among many switches (as in a Kubernetes cluster).
	Missing []MissingMember `json:"missing,omitempty"`
}

// Short returns the number of members that a chain lacks.
func (c *Chain) Short() int { return max(0, c.Length-len(c.Members)) }

// MissingMember is a switch that should be a member of a chain and is not.
type MissingMember struct {
	Switch string `json:"switch"` // the name of the switch
	Why    string `json:"why"`    // why it is not a member, or what must happen first, for people
}

// Member is one switch's part in a chain.
type Member struct {
	Switch  string `json:"switch"`  // the name of the switch
	Role    string `json:"role"`    // HEAD, REPLICA, TAIL, HEAD_TAIL, SHADOW or NONE
	Address string `json:"address"` // the switch's own IPv4 address: a READ sent there is answered by this switch
	Ready   bool   `json:"ready"`   // it has acknowledged the chain's configuration
	// LeaseLive: the member is ready, and the lease that its last LEASE_REPLY reported has not run
	// out. If the chain uses no leases, it equals Ready.
	LeaseLive bool `json:"leaseLive"`
	// Version is the version of NetCRAQ that the switch runs. It is empty if the switch does not
	// report it, for example because it is not connected or is BMv2.
	Version string `json:"version,omitempty"`
}

// ChainChange is the body of PUT /v1/chains/{chain}. Fields that are left out stay as they are.
type ChainChange struct {
	LeaseMillis *int  `json:"leaseMillis,omitempty"` // the read lease; 0: none
	Frozen      *bool `json:"frozen,omitempty"`      // whether members drop writes
	// switch names, head first: may leave members out; adding one needs recovery
	Members *[]string `json:"members,omitempty"`
}

// Move names the chain that a key is moved to (POST /v1/chains/{chain}/keys/{key}/move).
type Move struct {
	To string `json:"to"` // the name or the id of the other chain
}

// Recovery is the body of POST /v1/chains/{chain}/recover: the switch to bring in. The switch is a
// member when the answer comes.
type Recovery struct {
	Switch string `json:"switch"` // the name of the switch
}

// KeySpec asks for a key to be placed in a chain.
type KeySpec struct {
	Name  string  `json:"name"`            // the etcd key, or any other non-empty name
	KeyID *uint32 `json:"keyId,omitempty"` // left out: the controller chooses. The top byte must be the chain's id
	// base64 in JSON, "" for an empty value. Left out: reads get NOT_FOUND until the first write
	Value []byte `json:"value,omitzero"`
}

// KeyRequest is the body of POST /v1/keys: a key whose place the controller chooses.
type KeyRequest struct {
	Name string `json:"name"` // the name of the key, which may not be empty
	// as in KeySpec. A key that exists already keeps its value
	Value []byte `json:"value,omitzero"`
	// Chains in which it may be placed; empty: all
	Chains []string  `json:"chains,omitempty"`
	Quota  *KeyQuota `json:"quota,omitempty"` // if given, the key is added only within this quota
	// Node is the node that asks. The controller bounds the node's keys in each chain, so that
	// other nodes have room. "": an unknown caller, whose keys are not bounded
	Node string `json:"node,omitempty"`
}

// KeyQuota bounds the keys whose names start with a prefix, in all chains. The controller checks it
// and adds the key in one atomic step.
type KeyQuota struct {
	// the quota counts the keys whose names begin with this prefix; the new key must be one of them
	Prefix string `json:"prefix"`
	Keys   int    `json:"keys"` // maximum number of these keys, including the new one
}

// RequestedKey answers KeyRequest.
type RequestedKey struct {
	Key
	Created bool `json:"created"` // false: the key existed already
}

// Key is a key that is placed in the network.
type Key struct {
	Name  string `json:"name"`            // the name of the key
	KeyID uint32 `json:"keyId"`           // the number by which packets name the key
	Chain string `json:"chain"`           // the name of its chain
	Slot  int    `json:"slot"`            // its slot in the registers of the chain's switches
	Realm string `json:"realm,omitempty"` // the realm that a caller needs access to
	// VersionOffset converts a version of the KEY_ID, which switches report, to a version of the
	// name: add it, as an unsigned number of 64 bits. A name's versions only grow, also when its
	// key gets another KEY_ID. See docs/consistency.md.
	VersionOffset uint64 `json:"versionOffset,string,omitempty"`
	// Unwritten is the version of the name, if the key was added without a value and has not been
	// written since. 0: the key was added with a value.
	Unwritten uint64 `json:"unwritten,string,omitempty"`
	// SettledMillis, in answers about one key, is a time in milliseconds. For at least that long,
	// no other KEY_ID that the name had before could be read or written, and none will be again.
	SettledMillis int64      `json:"settledMillis,omitempty"`
	State         []KeyState `json:"state,omitempty"` // with ?state=1: what each member holds, head first
	Error         *Error     `json:"error,omitempty"` // in the answer to a list: why this key was not placed
}

// KeyState is what one switch holds for a key, according to its FETCH_REPLY.
type KeyState struct {
	Switch  string `json:"switch"`         // the name of the switch
	Status  string `json:"status"`         // OK, NOT_FOUND, DIRTY, or UNREACHABLE if the switch did not answer
	Version uint64 `json:"version,string"` // the committed version: chain epoch (16 bits), sequence (48 bits)
	// the newest accepted version; equal to the committed one where the slot is clean
	Newest  uint64 `json:"newest,string"`
	Length  int    `json:"length"`            // bytes in use; -1: no value (never written, or deleted)
	Value   []byte `json:"value,omitzero"`    // the committed value, base64 in JSON
	Session uint16 `json:"session,omitempty"` // the session that wrote the newest accepted version
	Request uint32 `json:"request,omitempty"` // number of that write's request in the session
}

// Switch is one switch as the controller sees it.
type Switch struct {
	Name      string `json:"name"`      // its name in the topology
	P4Runtime string `json:"p4runtime"` // host:port of its P4Runtime server
	DeviceID  uint64 `json:"deviceId"`  // its device id in P4Runtime
	Address   string `json:"address"`   // its own IPv4 address in the data plane
	Connected bool   `json:"connected"` // the P4Runtime stream to the switch is open
	Primary   bool   `json:"primary"`   // this controller won the arbitration
	Ready     bool   `json:"ready"`     // the pipeline and everything derived from the topology are installed
	Pipeline  string `json:"pipeline"`  // the cookie of the installed pipeline, hexadecimal
	// the version of NetCRAQ that the switch runs; left out if the switch does not report it
	Version string `json:"version,omitempty"`
	// the last error of the connection to the switch, or of a request to it
	LastError string   `json:"lastError,omitempty"`
	Chains    []string `json:"chains"` // the chains of which it is a member
	Ports     []Port   `json:"ports"`  // its ports, by number
}

// Port is a port of a switch and what it leads to.
type Port struct {
	Number uint32 `json:"number"` // its number in the data plane
	// "fabric", "host", "open" (a host that may do everything, with any client's session) or
	// "closed"
	Trust   string `json:"trust"`
	LeadsTo string `json:"leadsTo"` // "switch s2 port 3", "host h1", or "" for an unused one

	Principal string `json:"principal,omitempty"` // the principal that the host's requests carry
	// NetCRAQ packets a second that the host may send; 0: as many as it can
	Rate int `json:"rate,omitempty"`
}

// Counters is what one switch has counted.
type Counters struct {
	Switch string `json:"switch"` // the name of the switch
	// Events counts packets by outcome. The keys are the names of event_t in
	// p4src/include/events.p4, in lower case.
	Events map[string]uint64 `json:"events"`
	// Unsent counts the controller's own packets to the switch that the controller dropped, because
	// too many waited or the stream to the switch ended.
	Unsent uint64         `json:"unsent"`
	Slots  []SlotCounters `json:"slots"` // the placed keys' slots, in their order
	// Chains are the sums of each chain's slots, in the order of the chains' ids. With ?slots=0 the
	// answer has them instead of Slots.
	Chains []ChainCounters `json:"chains,omitempty"`
	Ports  []Port          `json:"ports"` // the ports of the switch, by number
}

// ChainCounters are the sums of a chain's slots at one switch, in packets.
type ChainCounters struct {
	ID       uint8  `json:"id"`       // the id of the chain
	Reads    uint64 `json:"reads"`    // READs that the switch answered
	Forwards uint64 `json:"forwards"` // READs that the switch sent on to the tail
	Writes   uint64 `json:"writes"`   // versions that the switch accepted
}

// ByChain returns the sums of the slots for each chain, in the order of the chains' ids.
func (c *Counters) ByChain() (out []ChainCounters) {
	for _, s := range c.Slots {
		id := uint8(s.KeyID >> 24)
		i, found := slices.BinarySearchFunc(out, id, func(c ChainCounters, id uint8) int {
			return int(c.ID) - int(id)
		})
		if !found {
			out = slices.Insert(out, i, ChainCounters{ID: id})
		}
		out[i].Reads += s.Reads
		out[i].Forwards += s.Forwards
		out[i].Writes += s.Writes
	}
	return out
}

// SlotCounters are the three counters of one slot at one switch, in packets.
type SlotCounters struct {
	Slot     int    `json:"slot"`     // the number of the slot
	KeyID    uint32 `json:"keyId"`    // the KEY_ID of the key in the slot
	Name     string `json:"name"`     // the name of the key
	Reads    uint64 `json:"reads"`    // READs that this switch answered from the slot
	Forwards uint64 `json:"forwards"` // READs of it that this switch sent on to the tail
	Writes   uint64 `json:"writes"`   // versions of it that this switch accepted
}

// SessionsRequest is the body of POST /v1/sessions.
type SessionsRequest struct {
	// how many sessions, 1 or more; each session has at most one write under way
	Count int    `json:"count"`
	Owner string `json:"owner,omitempty"` // for people: shown in events
	// Address is the client's own IPv4 address in the network. Only this host can use the sessions,
	// and only at its own port of its switch. The address can be left out if hosts may use sessions
	// that they have not leased.
	Address string `json:"address,omitempty"`
}

// Sessions is a lease on session ids. The controller gives the ids to no other client until the
// lease runs out.
type Sessions struct {
	Lease      string    `json:"lease"`      // names the lease in keepalives and in its release
	Sessions   []Session `json:"sessions"`   // the leased sessions
	TTLSeconds int       `json:"ttlSeconds"` // keep it alive (PUT) within this time
}

// TTL returns TTLSeconds as a duration.
func (s *Sessions) TTL() time.Duration { return time.Duration(s.TTLSeconds) * time.Second }

// Session is a session id and the number of its first request. That number is above all that any
// switch has recorded for earlier holders of the id. In the answer to a keepalive NextRequest is 0,
// because the holder knows which numbers it has used.
type Session struct {
	ID uint16 `json:"id"` // the id in the header of the session's packets
	// the number of the first request; 0 in the answer to a keepalive
	NextRequest uint32 `json:"nextRequest"`
}

// Event is something that happened, for people and for programs that follow along.
type Event struct {
	ID   uint64    `json:"id"`   // counts up from 1 since this controller started
	Time time.Time `json:"time"` // when the controller noted it
	Type string    `json:"type"` // one of docs/reference/events.md
	// the switch that the event is about
	Switch string `json:"switch,omitempty"`
	// the chain that the event is about
	Chain   string            `json:"chain,omitempty"`
	Message string            `json:"message"`        // the details, for people
	Data    map[string]string `json:"data,omitempty"` // more details, for programs
}

// The codes of Error. Each has one HTTP status.
const (
	CodeInvalidArgument  = "invalid_argument"  // 400: the request makes no sense; repeating it will not help
	CodeUnauthenticated  = "unauthenticated"   // 401: the caller must send a token or use the socket
	CodePermissionDenied = "permission_denied" // 403: the caller may not do this
	CodeNotFound         = "not_found"         // 404: no such chain, key, switch, session lease
	CodeAlreadyExists    = "already_exists"    // 409: the key name or KEY_ID is placed already
	// 412: refused in the present state; the message names the state, and what would help
	CodeFailedPrecondition = "failed_precondition"
	CodeResourceExhausted  = "resource_exhausted" // 507: no slot or no session is left
	CodeQuotaExceeded      = "quota_exceeded"     // 507: there is room, but not for these keys
	CodeUnavailable        = "unavailable"        // 503: a switch that is needed does not answer; try again
	CodeDeadlineExceeded   = "deadline_exceeded"  // 504: started, but not finished in time; it may still take effect
	CodeInternal           = "internal"           // 500
)

// Error is a failure that the API reports.
type Error struct {
	Status  int    `json:"-"`       // the HTTP status
	Code    string `json:"code"`    // for programs
	Message string `json:"message"` // for people
	// SettledMillis is set if a key's name is not found (CodeNotFound). It has the meaning of Key's
	// field.
	SettledMillis int64 `json:"settledMillis,omitempty"`
	// WatchedAt, with CodeFailedPrecondition of a watch, is the UDP port of the server that watches
	// at the same host. A server that can open that port knows that the other one has ended, and
	// may take its place.
	WatchedAt uint16 `json:"watchedAt,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Is makes errors.Is(err, &Error{Code: CodeNotFound}) work: equal codes are the same kind of
// failure.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error with a code, and the HTTP status of the code.
func Errorf(code, format string, args ...any) *Error {
	return &Error{Status: StatusOf(code), Code: code, Message: fmt.Sprintf(format, args...)}
}

// StatusOf returns the HTTP status of a code.
func StatusOf(code string) int {
	switch code {
	case CodeInvalidArgument:
		return http.StatusBadRequest
	case CodeUnauthenticated:
		return http.StatusUnauthorized
	case CodePermissionDenied:
		return http.StatusForbidden
	case CodeNotFound:
		return http.StatusNotFound
	case CodeAlreadyExists:
		return http.StatusConflict
	case CodeFailedPrecondition:
		return http.StatusPreconditionFailed
	case CodeResourceExhausted, CodeQuotaExceeded:
		return http.StatusInsufficientStorage
	case CodeUnavailable:
		return http.StatusServiceUnavailable
	case CodeDeadlineExceeded:
		return http.StatusGatewayTimeout
	}
	return http.StatusInternalServerError
}

// errorBody is the JSON of a failed request.
type errorBody struct {
	Error *Error `json:"error"`
}

// MarshalError returns the body of a failed request.
func MarshalError(e *Error) []byte {
	b, err := json.Marshal(errorBody{e})
	if err != nil { // it has only strings and numbers, so it cannot fail
		panic(err)
	}
	return append(b, '\n')
}

// WatchRequest makes the switch notify the server at a host of commits of keys, by NOTIFY packets
// (docs/protocol.md, "Watches"). It replaces that server's earlier watch; without keys, it only
// ends that watch.
type WatchRequest struct {
	Address string   `json:"address"` // the IPv4 address of the host
	Port    uint16   `json:"port"`    // the UDP port of the server
	KeyIDs  []uint32 `json:"keyIds"`  // the KEY_IDs of the keys to watch
}

// Watch is the answer to a WatchRequest.
type Watch struct {
	TTLSeconds int `json:"ttlSeconds"` // the watch ends unless it is renewed within this time
	// Refused are the keys that do not exist, that the host may not read, or that exceed the
	// maximum number.
	Refused []uint32 `json:"refused"`
}
