// Package nodeapi defines the messages of the node API, which a program exchanges with the server
// of its node over a local socket. docs/node-api.md is the normative text. The Go library is
// client/node, and the server is nodeapi/server.
//
// A connection is a stream of bytes. Its first bytes choose the framing, which is JSON with one
// message per line, or the compact framing (see Preface). The caller chooses an id for each
// request, and the answer repeats it. Answers come in any order. A watch gets several answers with
// its id, until it is canceled.
package nodeapi

import (
	"encoding/json"
	"fmt"
)

// DefaultSocket is the path of the socket of a node's server. Libraries use it unless
// NETCRAQ_NODE_SOCKET names another socket.
const DefaultSocket = "/run/netcraq/node.sock"

// SocketVariable is the environment variable with the address of the server: a path, or
// "tcp://host:port".
const SocketVariable = "NETCRAQ_NODE_SOCKET"

// Preface is the first bytes of a connection that uses the compact framing. JSON never begins with
// these bytes. After the preface, each message in both directions is a length and a body. The
// length has 4 bytes, big-endian. docs/node-api.md describes the encoding of the body.
const Preface = "\x00NC1"

// Request is one message from a program. In JSON it is one line.
type Request struct {
	// ID identifies the request, from 1 to 2^53-1. The caller chooses it, and the answers repeat
	// it. It must differ from the ids of other requests under way on the connection.
	ID uint64 `json:"id"`
	// Func is the function to call. It is one of the constants that begin with Func.
	Func string `json:"func"`
	// Data is a JSON object with the function's arguments. The types that are named after the
	// functions describe it.
	Data json.RawMessage `json:"data,omitempty"`
	// TimeoutMillis is the server's timeout for the request in milliseconds, at most
	// MaxTimeoutMillis. The value 0 means DefaultTimeoutMillis.
	TimeoutMillis int `json:"timeoutMs,omitempty"`
	// Once identifies the request among all requests of the client that the connection's hello
	// names. A client may send a request with a side effect again, with the same Once, after a
	// reconnection. Then the server executes it only once, and repeats the first answer. Each new
	// request needs a greater number. The value 0 means that the request has no identity.
	Once uint64 `json:"once,omitempty"`
	// Done reports that the caller has the answers to all its requests whose Once is smaller than
	// Done. So the server need not keep these answers. It may be left out.
	Done uint64 `json:"done,omitempty"`
}

// Response is one message from the server. Exactly one of Data and Error is set.
type Response struct {
	ID    uint64          `json:"id"`
	Data  json.RawMessage `json:"data,omitempty"`
	Error *Error          `json:"error,omitempty"`
	// More reports that further answers with this id follow, as for watches.
	More bool `json:"more,omitempty"`
}

// These are the limits of the node API. If a request exceeds a limit, the server refuses it with an
// error that names the limit, and the connection continues. Only a message that is too long ends
// the connection, because the server cannot know where the next message begins.
const (
	MaxMessage   = 256 << 10 // maximum length of one message in bytes, including its newline or length prefix
	MaxKeyName   = 256       // maximum length of a key's name in bytes, as UTF-8
	MaxNamespace = 63        // maximum length of a namespace in bytes; a namespace is a DNS label, as in Kubernetes
	// maximum number of requests under way on one connection; beyond it the server stops reading
	MaxInFlight = 1024
	MaxWatches  = 4096 // maximum number of watched keys and prefixes of one connection
	MaxMany     = 256  // maximum number of keys of one getMany
	MaxList     = 256  // maximum number of names that the server examines for one list
	DefaultList = 100  // number of names that the server examines for a list without a limit
	MaxTransact = 64   // maximum number of comparisons and writes of one transaction altogether
	// maximum bytes of answers that a client has not read; beyond it the server closes the
	// connection
	MaxUnsentBytes = 4 << 20
	// MaxTransactBytes bounds the names and values of one transaction, in bytes.
	MaxTransactBytes = 128 << 10
	// MaxFailedBytes bounds the values in the answer to a transaction that was not executed, in
	// bytes.
	MaxFailedBytes = 32 << 10

	DefaultTimeoutMillis = 5_000
	MaxTimeoutMillis     = 60_000
	// OnceKeptMillis is the time, in milliseconds, for which the server keeps the answers to
	// requests with Once after their connection has ended.
	OnceKeptMillis = 60_000
)

// These are the names of the functions of the node API.
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
	// FuncListLeases lists leases, and the locks, permits and other things that they hold.
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
	// FuncOpenFiles opens files for the connection, and releases other files.
	FuncOpenFiles = "openFiles"
	// FuncRewriteFile asks which rewritable files of a writer are free.
	FuncRewriteFile = "rewriteFile"
)

// Error describes why a request failed.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
	// Do says what the caller or an operator should do about the failure.
	Do string `json:"do,omitempty"`
}

// Error returns what happened, and what to do about it.
func (e *Error) Error() string {
	if e.Do == "" {
		return e.Message
	}
	return e.Message + " (" + e.Do + ")"
}

// Errorf makes an error for a client. The argument do says what to do about the failure.
func Errorf(code Code, do, format string, args ...any) *Error {
	return &Error{Code: code, Do: do, Message: fmt.Sprintf(format, args...)}
}

// Is makes errors.Is(err, &node.Error{Code: node.CodeUnavailable}) work. Two errors with equal
// codes are the same kind of failure.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Code is the kind of a failure.
type Code string

const (
	CodeInvalidArgument  Code = "invalid_argument"  // the request is malformed; sending it again will not help
	CodeTooLarge         Code = "too_large"         // a message, name or value is too long; the text gives the limit
	CodePermissionDenied Code = "permission_denied" // the caller lacks a right; the error's text names the rule
	CodeQuotaExceeded    Code = "quota_exceeded"    // the namespace has too many keys, watches, connections or requests
	CodeNoRoom           Code = "no_room"           // no chain that the namespace may use has a free slot
	CodeLeaseGone        Code = "lease_gone"        // the lease has expired, or never existed
	CodeNotHeld          Code = "not_held"          // the caller does not, or no longer, hold the lock or permit
	CodeWrongOffset      Code = "wrong_offset"      // an append's At is not the next offset; nothing was appended
	CodeTimeout          Code = "timeout"           // the request was not executed in time, and had no effect
	CodeOutcomeUnknown   Code = "outcome_unknown"   // the request may or may not have been executed
	CodeUnavailable      Code = "unavailable"       // a chain or the controller does not answer; no effect, try again
	CodeCanceled         Code = "canceled"          // the caller canceled the request
	CodeDraining         Code = "draining"          // the server is shutting down; the client should connect again
	CodeInternal         Code = "internal"
)
