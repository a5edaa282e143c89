// Package nodeapi is the contract of the node API: the messages between a program and its node's
// server, over a local socket. docs/node-api.md is the normative text; client/node is the Go
// library, nodeapi/server the server.
//
// A connection is a stream. Its first bytes choose the framing: JSON, with one message per line, or
// the compact framing (see Preface). The caller chooses an id for each request, which the answers
// repeat; answers come in any order. A watch gets several answers under its id, until it is
// canceled.
package nodeapi

import (
	"encoding/json"
	"fmt"
)

// DefaultSocket is the path of a node's server. Libraries use it unless NETCRAQ_NODE_SOCKET names
// another one.
const DefaultSocket = "/run/netcraq/node.sock"

// SocketVariable is the environment variable with the address of the server: a path, or
// "tcp://host:port".
const SocketVariable = "NETCRAQ_NODE_SOCKET"

// Preface is the first bytes of a connection in the compact framing. JSON never begins with them.
// After it, each message in both directions is 4 bytes with the length of the rest, big-endian, and
// the rest in the encoding that docs/node-api.md describes.
const Preface = "\x00NC1"

// Request is one message from a program. In JSON it is one line.
type Request struct {
	// ID is chosen by the caller and repeated in answers. It must differ from those of other
	// requests under way on the connection. 1 to 2^53-1.
	ID uint64 `json:"id"`
	// Func is the function to call: one of the Func constants.
	Func string `json:"func"`
	// Data are the function's arguments, an object: see the types named after the functions.
	Data json.RawMessage `json:"data,omitempty"`
	// TimeoutMillis is the server's timeout for the request. 0: DefaultTimeoutMillis. At most
	// MaxTimeoutMillis.
	TimeoutMillis int `json:"timeoutMs,omitempty"`
	// Once identifies the request within the client that the connection's hello has named. If a
	// request with a side effect is sent again under the same number after a reconnection, it is
	// executed once, and gets the first answer. 0: no identity. Each new request has a greater
	// number.
	Once uint64 `json:"once,omitempty"`
	// Done reports that the caller has the answers to all its requests with a smaller Once, so that
	// the server need not keep them. It may be left out.
	Done uint64 `json:"done,omitempty"`
}

// Response is one message from the server. Either Data or Error is set.
type Response struct {
	ID    uint64          `json:"id"`
	Data  json.RawMessage `json:"data,omitempty"`
	Error *Error          `json:"error,omitempty"`
	// More reports that further answers with this id follow (watches).
	More bool `json:"more,omitempty"`
}

// Limits. The server refuses a request beyond a limit with an error that names the limit, and the
// connection continues. Only a message that is too long ends the connection, because the server
// cannot know where the next one begins.
const (
	MaxMessage     = 256 << 10 // maximum bytes of one message, including its newline or length
	MaxKeyName     = 256       // bytes of a key's name, UTF-8
	MaxNamespace   = 63        // bytes; a namespace is a DNS label, as in Kubernetes
	MaxInFlight    = 1024      // requests of one connection under way; beyond it the server stops reading
	MaxWatches     = 4096      // watched keys and prefixes of one connection
	MaxMany        = 256       // keys of one getMany
	MaxList        = 256       // names that the server examines for one list
	DefaultList    = 100       // the same, if the request has no limit
	MaxTransact    = 64        // comparisons and writes of one transaction altogether
	MaxUnsentBytes = 4 << 20   // unread answers of a client; beyond it the connection is cut off
	// MaxTransactBytes bounds the names and values of one transaction, in bytes.
	MaxTransactBytes = 128 << 10
	// MaxFailedBytes bounds the values in the answer to a transaction that was not executed, in
	// bytes.
	MaxFailedBytes = 32 << 10

	DefaultTimeoutMillis = 5_000
	MaxTimeoutMillis     = 60_000
	// OnceKeptMillis is the time, in milliseconds, for which answers to requests with Once are kept
	// after their connection has ended.
	OnceKeptMillis = 60_000
)

// The functions.
const (
	FuncHello     = "hello"
	FuncPing      = "ping"
	FuncCancel    = "cancel" // cancels a request under way on this connection, for example a watch
	FuncGet       = "get"
	FuncGetMany   = "getMany"
	FuncList      = "list"
	FuncPut       = "put"
	FuncCAS       = "cas"
	FuncDelete    = "delete"
	FuncIncrement = "increment"
	FuncTransact  = "transact" // compares and writes several durable keys together
	FuncWatch     = "watch"

	FuncGrant     = "grant"
	FuncKeepAlive = "keepAlive"
	FuncRevoke    = "revoke"
	// FuncListLeases lists leases, and what they hold.
	FuncListLeases = "listLeases"

	FuncLock     = "lock"
	FuncUnlock   = "unlock"
	FuncCampaign = "campaign"
	FuncResign   = "resign"
	FuncLeader   = "leader"
	FuncAcquire  = "acquire" // acquires a permit of a semaphore
	FuncRelease  = "release"

	FuncRegisterService   = "registerService"
	FuncDeregisterService = "deregisterService"
	FuncGetService        = "getService"
	FuncWatchService      = "watchService"

	FuncOpenStream   = "openStream"
	FuncDeleteStream = "deleteStream"
	FuncListStreams  = "listStreams"
	FuncAppend       = "append"
	FuncRead         = "read"
	FuncSubscribe    = "subscribe"

	FuncMakeFile = "makeFile"
	FuncSealFile = "sealFile"
	FuncOpenFile = "openFile"
	// FuncOpenFiles opens files for the connection, and releases others.
	FuncOpenFiles = "openFiles"
	// FuncRewriteFile asks which of a maker's rewritable files are free.
	FuncRewriteFile = "rewriteFile"
)

// Error is why a request failed.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Do tells the caller or an operator what to do about it.
	Do string `json:"do,omitempty"`
}

// Error returns what happened, and what to do about it.
func (e *Error) Error() string {
	if e.Do == "" {
		return e.Message
	}
	return e.Message + " (" + e.Do + ")"
}

// Errorf makes an error for a client. do is the advice what to do about it.
func Errorf(code Code, do, format string, args ...any) *Error {
	return &Error{Code: code, Do: do, Message: fmt.Sprintf(format, args...)}
}

// Is makes errors.Is(err, &node.Error{Code: node.CodeUnavailable}) work: equal codes are the same
// kind of failure.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Code is the kind of a failure.
type Code string

const (
	CodeInvalidArgument  Code = "invalid_argument"  // the request is malformed; sending it again will not help
	CodeTooLarge         Code = "too_large"         // a message, name or value is too long; the message has the numbers
	CodePermissionDenied Code = "permission_denied" // the caller lacks a right; the message names the rule
	CodeQuotaExceeded    Code = "quota_exceeded"    // too many keys, watches, connections or requests of the namespace
	CodeNoRoom           Code = "no_room"           // no chain that the namespace may use has a free slot
	CodeLeaseGone        Code = "lease_gone"        // the lease has expired, or never existed
	CodeNotHeld          Code = "not_held"          // the caller does not hold the lock, leadership or permit (any longer)
	CodeWrongOffset      Code = "wrong_offset"      // an append's At is not the next offset: nothing was appended
	CodeTimeout          Code = "timeout"           // not executed in time; the request had no effect
	CodeOutcomeUnknown   Code = "outcome_unknown"   // it may or may not have been executed
	CodeUnavailable      Code = "unavailable"       // a chain or the controller does not answer: no effect, try again
	CodeCanceled         Code = "canceled"          // canceled by the caller
	CodeDraining         Code = "draining"          // the server is shutting down: connect again
	CodeInternal         Code = "internal"
)
