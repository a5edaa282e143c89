// Package admin contains the JSON types of the controller's admin API, and a client for it.
//
// The API is HTTP and JSON over a Unix socket (SystemSocket), and over TCP for callers with a
// token. Operators use it to read the members of a chain, the keys in the network, and the counters
// of switches. They also use it to add or remove keys, or to change leases. Clients of the data
// plane use it to get the service address of a chain, the KEY_ID of an etcd key, and a session id.
// Reads and writes of values do not pass through this API, because clients send them to the
// switches as packets.
//
// A failed request gets an HTTP status of 400 or above, with the body {"error": {"code": "...",
// "message": "..."}}. The client returns this error as *Error.
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

// These are the default paths of the controller's socket and of the token files. Their folder is
// not the node agent's folder, because only root can enter that.
const (
	SystemFolder = "/run/netcraq-admin"
	SystemSocket = "unix://" + SystemFolder + "/controller.sock"
)

// folder returns the folder of the socket and the tokens. If the user is not root, and no
// system-wide controller runs, the folder belongs to this user.
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

// DefaultToken and DefaultReadToken return the paths of the files with the tokens for TCP.
func DefaultToken() string     { return filepath.Join(folder(), "token") }
func DefaultReadToken() string { return filepath.Join(folder(), "read-token") }

// PageLink is the answer to POST /v1/page. It is a login link for the web page that works once, and
// only for the given number of seconds.
type PageLink struct {
	URL     string `json:"url"`     // the link, with a code that works only once
	Seconds int    `json:"seconds"` // number of seconds for which the code works
}

// Chain is one chain (virtual group) with its members in order.
type Chain struct {
	Name string `json:"name"` // the chain's name in the topology file
	// the chain's id, which is the top byte of the KEY_ID of all its keys
	ID uint8 `json:"id"`
	// epoch of the newest chain configuration, which may not be installed completely yet
	Epoch uint16 `json:"epoch"`
	// the IPv4 address to which clients send requests; every member accepts it
	ServiceAddress string `json:"serviceAddress"`
	// length of the read leases in milliseconds; 0 means that members answer reads without a lease,
	// as in the paper's fail-stop model
	LeaseMillis int `json:"leaseMillis"`
	// LeaseGivenMillis is the length of the leases that the controller gives at present, in
	// milliseconds. The controller gives shorter leases than LeaseMillis while nothing is late
	// (shortLeaseMillis in the topology file). The value 0 means that it gives leases of
	// LeaseMillis.
	LeaseGivenMillis int  `json:"leaseGivenMillis,omitempty"`
	Frozen           bool `json:"frozen"` // members drop writes, and the head answers them with RETRY
	Slots            int  `json:"slots"`  // number of slots in which this chain may place keys
	Keys             int  `json:"keys"`   // number of keys placed in the chain
	// every member has installed the configuration and, if the chain uses leases, has a live lease
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why the chain is not ready
	// the largest value in bytes that the switches' P4 program can hold (VALUE_BITS/8)
	ValueBytes int      `json:"valueBytes"`
	Members    []Member `json:"members"` // the members in chain order, from the head to the tail
	// VersionWarning is empty unless two programs (members of the chain, or the controller) run
	// versions that are too far apart to have been tested together. Otherwise it names the two
	// programs, and says which of them to upgrade.
	VersionWarning string `json:"versionWarning,omitempty"`
	// Length is the number of members that the chain should have. A chain with fewer members still
	// serves. The value 0 means that the controller's version does not report the length.
	Length int `json:"length,omitempty"`
	// Missing lists the switches that should be members of the chain but are not. It is empty if
	// the chain has all its members. It is also empty if members are chosen among many switches, as
	// in a Kubernetes cluster.
	Missing []MissingMember `json:"missing,omitempty"`
}

// Short returns the number of members that a chain lacks.
func (c *Chain) Short() int { return max(0, c.Length-len(c.Members)) }

// MissingMember describes a switch that should be a member of a chain but is not.
type MissingMember struct {
	Switch string `json:"switch"` // the name of the switch
	// why the switch is not a member, or what must happen before it can be one, for people
	Why string `json:"why"`
}

// Member describes one switch as a member of a chain.
type Member struct {
	Switch  string `json:"switch"`  // the name of the switch
	Role    string `json:"role"`    // the switch's role in the chain: HEAD, REPLICA, TAIL, HEAD_TAIL, SHADOW or NONE
	Address string `json:"address"` // the switch's own IPv4 address; a READ sent to it is answered by this switch
	Ready   bool   `json:"ready"`   // the switch has acknowledged the chain's configuration
	// LeaseLive reports that the switch is ready, and that the lease in its last LEASE_REPLY has
	// not expired. If the chain uses no leases, LeaseLive equals Ready.
	LeaseLive bool `json:"leaseLive"`
	// Version is the version of NetCRAQ that the switch runs. It is empty if the switch does not
	// report it, for example because it is not connected or is BMv2.
	Version string `json:"version,omitempty"`
}

// ChainChange is the body of PUT /v1/chains/{chain}. A field that is left out changes nothing.
type ChainChange struct {
	LeaseMillis *int  `json:"leaseMillis,omitempty"` // length of the read leases in milliseconds; 0 means no leases
	Frozen      *bool `json:"frozen,omitempty"`      // whether members drop writes
	// Members are the switches that remain members, with the head first. The list may leave out
	// present members, but cannot add a switch: that takes a Recovery.
	Members *[]string `json:"members,omitempty"`
}

// Move is the body of POST /v1/chains/{chain}/keys/{key}/move.
type Move struct {
	To string `json:"to"` // name or id of the chain to which the key is moved
}

// Recovery is the body of POST /v1/chains/{chain}/recover. It names the switch to add. The switch
// is a member when the answer comes.
type Recovery struct {
	Switch string `json:"switch"` // the name of the switch
}

// KeySpec asks for a key to be placed in a chain.
type KeySpec struct {
	Name string `json:"name"` // the name of the etcd key, or any other non-empty name
	// the KEY_ID, whose top byte must be the chain's id; if left out, the controller chooses one
	KeyID *uint32 `json:"keyId,omitempty"`
	// Value is the key's first value, in base64 in JSON. If it is left out, reads get NOT_FOUND
	// until the first write.
	Value []byte `json:"value,omitzero"`
}

// KeyRequest is the body of POST /v1/keys. The controller chooses the chain of the key.
type KeyRequest struct {
	Name string `json:"name"` // the name of the key, which may not be empty
	// Value is the key's first value, as in KeySpec. A key that already exists keeps its value.
	Value []byte `json:"value,omitzero"`
	// Chains in which the key may be placed; empty means all chains
	Chains []string  `json:"chains,omitempty"`
	Quota  *KeyQuota `json:"quota,omitempty"` // if set, the controller adds the key only within this quota
	// Node is the node that requests the key. The controller limits the number of keys that a node
	// has in each chain, so that other nodes have room. If Node is empty, the caller is unknown,
	// and its keys are not limited.
	Node string `json:"node,omitempty"`
}

// KeyQuota bounds the keys whose names start with a prefix, in all chains. The controller checks it
// and adds the key in one atomic step.
type KeyQuota struct {
	// the quota counts the keys whose names begin with this prefix; the new key's name must, too
	Prefix string `json:"prefix"`
	Keys   int    `json:"keys"` // maximum number of keys with the prefix, including the new key
}

// RequestedKey is the answer to a KeyRequest.
type RequestedKey struct {
	Key
	Created bool `json:"created"` // whether this request created the key; false if the key already existed
}

// Key is a key that is placed in the network.
type Key struct {
	Name  string `json:"name"`            // the name of the key
	KeyID uint32 `json:"keyId"`           // the number that identifies the key in packets
	Chain string `json:"chain"`           // the name of the key's chain
	Slot  int    `json:"slot"`            // the key's slot in the registers of the chain's switches
	Realm string `json:"realm,omitempty"` // the realm to which a caller needs access to use the key
	// VersionOffset converts a version of the KEY_ID, which switches report, to a version of the
	// key's name: add the two as unsigned 64-bit numbers. The versions of a name only grow, even
	// when the key gets another KEY_ID. See docs/consistency.md.
	VersionOffset uint64 `json:"versionOffset,string,omitempty"`
	// Unwritten is the version of the key's name, if the key was added without a value and has not
	// been written since. The value 0 means that the key was added with a value.
	Unwritten uint64 `json:"unwritten,string,omitempty"`
	// SettledMillis is set in answers about one key. For at least that many milliseconds, none of
	// the other KEY_IDs that the name had earlier could be read or written. None of them can be
	// read or written in the future either.
	SettledMillis int64 `json:"settledMillis,omitempty"`
	// State, with ?state=1, lists what each member of the chain holds for the key, head first
	State []KeyState `json:"state,omitempty"`
	// in the answer to a request for several keys: why this key was not placed
	Error *Error `json:"error,omitempty"`
}

// KeyState is what one switch holds for a key, according to its FETCH_REPLY.
type KeyState struct {
	Switch string `json:"switch"` // the name of the switch
	Status string `json:"status"` // OK, NOT_FOUND or DIRTY; UNREACHABLE if the switch did not answer
	// the committed version: the chain's epoch (16 bits) and the sequence (48 bits)
	Version uint64 `json:"version,string"`
	// the newest accepted version; it equals the committed version if the slot is clean
	Newest uint64 `json:"newest,string"`
	// length of the value in bytes; -1 if the key has no value (never written, or deleted)
	Length  int    `json:"length"`
	Value   []byte `json:"value,omitzero"`    // the committed value, base64 in JSON
	Session uint16 `json:"session,omitempty"` // the session that wrote the newest accepted version
	// the number, in its session, of the request that wrote the newest accepted version
	Request uint32 `json:"request,omitempty"`
}

// Switch is the controller's view of one switch.
type Switch struct {
	Name      string `json:"name"`      // the switch's name in the topology file
	P4Runtime string `json:"p4runtime"` // host:port of the switch's P4Runtime server
	DeviceID  uint64 `json:"deviceId"`  // the switch's device id in P4Runtime
	Address   string `json:"address"`   // the switch's own IPv4 address in the data plane
	Connected bool   `json:"connected"` // whether the P4Runtime stream to the switch is open
	Primary   bool   `json:"primary"`   // whether this controller won the P4Runtime arbitration
	// whether the pipeline and all table entries that the topology requires are installed
	Ready    bool   `json:"ready"`
	Pipeline string `json:"pipeline"` // the cookie of the installed pipeline, in hexadecimal
	// the version of NetCRAQ that the switch runs; left out if the switch does not report it
	Version string `json:"version,omitempty"`
	// the last error of the connection to the switch, or of a request to it
	LastError string   `json:"lastError,omitempty"`
	Chains    []string `json:"chains"` // the chains of which the switch is a member
	Ports     []Port   `json:"ports"`  // the ports of the switch, by number
}

// Port describes a port of a switch, and what is connected to it.
type Port struct {
	Number uint32 `json:"number"` // the port's number in the data plane
	// Trust is "fabric", "host", "open" or "closed". A host at an open port may do everything, with
	// any client's session.
	Trust string `json:"trust"`
	// what is connected: for example "switch s2 port 3" or "host h1", or "" for an unused port
	LeadsTo string `json:"leadsTo"`

	Principal string `json:"principal,omitempty"` // the principal that the host's requests carry
	// maximum number of NetCRAQ packets per second from the host; 0 means no limit
	Rate int `json:"rate,omitempty"`
}

// Counters are the counters of one switch.
type Counters struct {
	Switch string `json:"switch"` // the name of the switch
	// Events counts packets by outcome. The names of the outcomes are those of event_t in
	// p4src/include/events.p4, in lower case.
	Events map[string]uint64 `json:"events"`
	// Unsent counts the packets that the controller dropped instead of sending them to the switch.
	// It drops a packet if too many are waiting, or if the stream to the switch has ended.
	Unsent uint64         `json:"unsent"`
	Slots  []SlotCounters `json:"slots"` // the counters of the slots of placed keys, ordered by slot
	// Chains are the counters of each chain's slots added up, ordered by the chains' ids. With
	// ?slots=0 the answer has Chains instead of Slots.
	Chains []ChainCounters `json:"chains,omitempty"`
	Ports  []Port          `json:"ports"` // the ports of the switch, by number
}

// ChainCounters are a switch's slot counters added up over one chain, in packets.
type ChainCounters struct {
	ID       uint8  `json:"id"`       // the id of the chain
	Reads    uint64 `json:"reads"`    // READs that the switch answered
	Forwards uint64 `json:"forwards"` // READs that the switch forwarded to the tail
	Writes   uint64 `json:"writes"`   // versions of keys that the switch accepted
}

// ByChain adds up the counters of the slots of each chain. It returns the sums ordered by the
// chains' ids.
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
	Forwards uint64 `json:"forwards"` // READs of the key that this switch forwarded to the tail
	Writes   uint64 `json:"writes"`   // versions of the key that this switch accepted
}

// SessionsRequest is the body of POST /v1/sessions.
type SessionsRequest struct {
	// number of sessions to lease, at least 1; each session can have one write in flight
	Count int    `json:"count"`
	Owner string `json:"owner,omitempty"` // a name for people, which events show
	// Address is the client's own IPv4 address in the network. Only this host can use the sessions,
	// and only through its own port of its switch. The address can be left out if hosts may use
	// sessions that they have not leased.
	Address string `json:"address,omitempty"`
}

// Sessions is a lease on session ids. The controller gives the ids to no other client until the
// lease runs out.
type Sessions struct {
	Lease      string    `json:"lease"`      // identifies the lease in requests that renew or release it
	Sessions   []Session `json:"sessions"`   // the leased sessions
	TTLSeconds int       `json:"ttlSeconds"` // the lease expires unless it is renewed (PUT) within this many seconds
}

// TTL returns TTLSeconds as a duration.
func (s *Sessions) TTL() time.Duration { return time.Duration(s.TTLSeconds) * time.Second }

// Session is a session id, with the number to use for the first request. That number is greater
// than every request number that a switch has recorded for earlier holders of the id. In the answer
// to a renewal NextRequest is 0, because the holder knows which numbers it has used.
type Session struct {
	ID uint16 `json:"id"` // the id in the header of the session's packets
	// the number to use for the first request; 0 in the answer to a renewal of the lease
	NextRequest uint32 `json:"nextRequest"`
}

// Event describes something that happened in the controller, for people and for programs.
type Event struct {
	ID   uint64    `json:"id"`   // the number of the event; the controller counts from 1 when it starts
	Time time.Time `json:"time"` // when the controller recorded the event
	Type string    `json:"type"` // one of the types in docs/reference/events.md
	// the switch that the event is about
	Switch string `json:"switch,omitempty"`
	// the chain that the event is about
	Chain   string            `json:"chain,omitempty"`
	Message string            `json:"message"`        // the details, for people
	Data    map[string]string `json:"data,omitempty"` // more details, for programs
}

// These are the codes of Error. Each has one HTTP status.
const (
	CodeInvalidArgument  = "invalid_argument"  // 400: the request is invalid; repeating it will not help
	CodeUnauthenticated  = "unauthenticated"   // 401: the caller must send a token or use the socket
	CodePermissionDenied = "permission_denied" // 403: the caller may not do this
	CodeNotFound         = "not_found"         // 404: there is no such chain, key, switch or session lease
	CodeAlreadyExists    = "already_exists"    // 409: a key with this name or KEY_ID is already placed
	// 412: the request is refused in the present state; the message names the state, and says what
	// would help
	CodeFailedPrecondition = "failed_precondition"
	CodeResourceExhausted  = "resource_exhausted" // 507: no slot or no session is left
	// 507: there are free slots, but the quota for these keys is used up
	CodeQuotaExceeded = "quota_exceeded"
	// 503: a switch that is needed does not answer; the caller may try again
	CodeUnavailable = "unavailable"
	// 504: the operation started but did not finish in time; it may still take effect
	CodeDeadlineExceeded = "deadline_exceeded"
	CodeInternal         = "internal" // 500
)

// Error is a failure that the API reports.
type Error struct {
	Status  int    `json:"-"`       // the HTTP status
	Code    string `json:"code"`    // the kind of failure, for programs
	Message string `json:"message"` // what failed, for people
	// SettledMillis is set if a key's name is not found (CodeNotFound). It has the meaning of
	// Key.SettledMillis.
	SettledMillis int64 `json:"settledMillis,omitempty"`
	// WatchedAt is set if a watch is refused with CodeFailedPrecondition, because another server
	// watches from the same host. It is the UDP port of that server. If the caller can open this
	// port, that server has ended, and the caller may replace it.
	WatchedAt uint16 `json:"watchedAt,omitempty"`
}

func (e *Error) Error() string { return e.Message }

// Is makes errors.Is(err, &Error{Code: CodeNotFound}) work. Two errors with equal codes are the
// same kind of failure.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errorf makes an Error with a code, and the HTTP status of that code.
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

// errorBody is the JSON body of the answer to a failed request.
type errorBody struct {
	Error *Error `json:"error"`
}

// MarshalError returns the body of the answer to a failed request.
func MarshalError(e *Error) []byte {
	b, err := json.Marshal(errorBody{e})
	if err != nil { // marshaling cannot fail, because the body has only strings and numbers
		panic(err)
	}
	return append(b, '\n')
}

// WatchRequest makes the switch of a host send a NOTIFY packet to a server on that host whenever a
// key is committed (docs/protocol.md, "Watches"). It replaces the server's earlier watch. Without
// keys, it only ends the earlier watch.
type WatchRequest struct {
	Address string   `json:"address"` // the IPv4 address of the host of the server
	Port    uint16   `json:"port"`    // the UDP port of the server
	KeyIDs  []uint32 `json:"keyIds"`  // the KEY_IDs of the keys to watch
}

// Watch is the answer to a WatchRequest.
type Watch struct {
	TTLSeconds int `json:"ttlSeconds"` // the watch ends unless it is renewed within this many seconds
	// Refused are the keys that do not exist, that the host may not read, or that exceed the
	// maximum number.
	Refused []uint32 `json:"refused"`
}
