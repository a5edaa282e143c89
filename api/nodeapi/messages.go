package nodeapi

// This file has the data of requests and answers of each function. The value of a key is bytes. An
// answer contains it as text in Value if it is UTF-8, and otherwise as base64 in ValueBase64. A
// request may use either field.
//
// A version is written EPOCH.SEQUENCE, as in the rest of the project. "0.0" is the version of a key
// that was never written. The later of two versions of a key has the greater epoch or, in the same
// epoch, the greater sequence.

// Hello is the first request of a connection. A client may leave it out.
type Hello struct {
	// Client identifies the client on all its connections. It is 32 random hexadecimal digits. Only
	// requests with Once need it.
	Client string `json:"client,omitempty"`
	Agent  string `json:"agent,omitempty"` // the client's library and its version, for logs
	// Namespace is the default namespace of requests on this connection. If it is empty, the
	// default is the caller's own namespace.
	Namespace string `json:"namespace,omitempty"`
	// DrainNotice makes the server notify the client when the server begins to shut down. See the
	// type DrainNotice.
	DrainNotice bool `json:"drainNotice,omitempty"`
}

// DrainNotice is a message that announces that the server begins to shut down. The server sends it
// once, under the id 0, to clients whose hello requested it. It still answers, so the client need
// not send requests under way again. The client opens a new connection, where a successor of the
// server may listen, and sends all new requests there. It closes the old connection when it has all
// answers. So no call fails.
type DrainNotice struct {
	Draining bool `json:"draining"`
}

// HelloAnswer answers Hello.
type HelloAnswer struct {
	Server    string `json:"server"` // name and version of the server
	Node      string `json:"node"`
	Namespace string `json:"namespace"`
	// Known reports whether the server still has the answers to this client's earlier requests with
	// Once. If it does, it executes a repeated request only once. If it does not, the outcome of
	// such earlier requests is unknown.
	Known bool `json:"known"`
	// maximum length of a value in bytes, in the chain with the largest values that the namespace
	// may use
	MaxValue int  `json:"maxValue"`
	InFlight int  `json:"inFlight"`
	MaxBytes int  `json:"maxMessage"`
	Durable  bool `json:"durable"` // whether etcd stores new keys of the namespace
	Draining bool `json:"draining,omitempty"`
	// MaxList is the largest Limit of a list. The value 0 means that the server is too old for
	// lists.
	MaxList int `json:"maxList,omitempty"`
}

// CancelData cancels a request under way. The server answers that request with CodeCanceled, or as
// usual if it has already executed the request. It answers the cancel request with {}.
type CancelData struct {
	ID uint64 `json:"id"`
}

// Key names a key.
type Key struct {
	Namespace string `json:"namespace,omitempty"`
	Key       string `json:"key"`
}

// GetData reads a key.
type GetData struct {
	Key
	// Eventual allows the last committed value of the nearest chain member. Otherwise the read is
	// linearizable.
	Eventual bool `json:"eventual,omitempty"`
}

// Item is the state of a key. Found is false if the key has no value.
type Item struct {
	Key         string  `json:"key"`
	Found       bool    `json:"found"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Version     string  `json:"version"`
	Lease       string  `json:"lease,omitempty"`
	Error       *Error  `json:"error,omitempty"` // in answers to getMany and list: why the key could not be read
}

// GetManyData reads several keys. The reads are executed in no particular order.
type GetManyData struct {
	Namespace string   `json:"namespace,omitempty"`
	Keys      []string `json:"keys"`
	Eventual  bool     `json:"eventual,omitempty"`
}

// GetManyAnswer has the keys in the order of the request.
type GetManyAnswer struct {
	Items []Item `json:"items"`
}

// ListData requests a page of the keys whose names begin with Prefix, sorted by the bytes of their
// names. An empty Prefix lists all keys of the namespace.
type ListData struct {
	Namespace string `json:"namespace,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	// Limit is the number of names that the server examines for this page, from 1 to MaxList. The
	// value 0 means DefaultList.
	Limit int `json:"limit,omitempty"`
	// Cursor is the Cursor in the answer with the preceding page. It is empty for the first page.
	Cursor string `json:"cursor,omitempty"`
	// KeysOnly leaves the values out of the answer. The items still have versions and leases.
	KeysOnly bool `json:"keysOnly,omitempty"`
}

// ListAnswer has those keys of a page that have a value. Their number may be below the limit, or 0,
// although more pages follow. An item has an Error if its key could not be read.
type ListAnswer struct {
	Items []Item `json:"items"`
	// Cursor requests the next page. It is empty if this is the last page.
	Cursor string `json:"cursor,omitempty"`
}

// PutData writes a value, and creates the key if it does not exist.
type PutData struct {
	Key
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Lease       string  `json:"lease,omitempty"` // the lease with which the key expires
}

// PutAnswer answers put and delete.
type PutAnswer struct {
	Version string `json:"version"`
}

// CASData writes a value if the key's version equals Version. A client knows versions from answers.
// The version "0.0" means that the key was never written. A deleted key has the version of its
// deletion.
type CASData struct {
	PutData
	Version string `json:"version"`
}

// CASAnswer reports whether the value was written. Item is the key's state after the call.
type CASAnswer struct {
	Swapped bool `json:"swapped"`
	Item
}

// DeleteData removes a key's value. If Version is set, the server does so only if the key has that
// version.
type DeleteData struct {
	Key
	Version string `json:"version,omitempty"`
}

// DeleteAnswer is the answer to DeleteData. Deleted is false if the key had another version. Item
// is the key's state after the call.
type DeleteAnswer struct {
	Deleted bool `json:"deleted"`
	Item
}

// IncrementData adds to a value, which is a signed 64-bit decimal number as text. A missing value
// counts as 0.
type IncrementData struct {
	Key
	By *int64 `json:"by,omitempty"` // the number to add; nil means 1
}

// IncrementAnswer has the sum as a number and as text. JavaScript needs the text, because its
// numbers are exact only up to 2^53.
type IncrementAnswer struct {
	Number  int64  `json:"number"`
	Value   string `json:"value"`
	Version string `json:"version"`
}

// TransactData compares and writes durable keys of one namespace atomically. If all comparisons
// hold, the server executes all writes, and otherwise none. Compare and Write have 1 to MaxTransact
// elements altogether. A key occurs at most once in Compare and at most once in Write.
type TransactData struct {
	Namespace string          `json:"namespace,omitempty"`
	Compare   []Comparison    `json:"compare,omitempty"`
	Write     []TransactWrite `json:"write,omitempty"`
}

// Comparison is a condition on a key. Exactly one of Version, Value, ValueBase64 and Absent is set.
type Comparison struct {
	Key string `json:"key"`
	// Version is the version that the key must have. The version "0.0" means that the key was never
	// written.
	Version string `json:"version,omitempty"`
	// Value or ValueBase64 is the value that the key must have.
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	// Absent requires that the key has no value: it was never written, or was deleted.
	Absent bool `json:"absent,omitempty"`
}

// TransactWrite writes a value, as PutData does, or deletes the key's value.
type TransactWrite struct {
	Key         string  `json:"key"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Lease       string  `json:"lease,omitempty"` // the lease with which the key expires
	Delete      bool    `json:"delete,omitempty"`
}

// TransactAnswer reports whether the writes were executed.
type TransactAnswer struct {
	Done bool `json:"done"`
	// Versions are the versions of the written keys, in the order of Write. All of them are equal,
	// with one exception: a deleted key that was never written has "0.0".
	Versions []string `json:"versions,omitempty"`
	// Failed lists the keys whose comparisons did not hold, in the order of Compare, if the
	// transaction was not executed. When the values exceed MaxFailedBytes in total, the remaining
	// values are left out. Such an item has Found set but no value.
	Failed []Item `json:"failed,omitempty"`
}

// WatchData watches keys, or all keys whose names begin with Prefix. After maps keys to the
// versions that the caller knows, and the server reports only newer versions. For a key that is not
// in After, the server first reports the current state.
type WatchData struct {
	Namespace string            `json:"namespace,omitempty"`
	Keys      []string          `json:"keys,omitempty"`
	Prefix    *string           `json:"prefix,omitempty"`
	After     map[string]string `json:"after,omitempty"`
}

// WatchAnswer reports changes. The first answer has Started, and no events.
type WatchAnswer struct {
	Started bool    `json:"started,omitempty"`
	Events  []Event `json:"events,omitempty"`
}

// Event reports the newest version of a key. Overtaken counts the versions that were skipped since
// the preceding event of the key.
type Event struct {
	Item
	Overtaken uint64 `json:"overtaken,omitempty"`
}

// GrantData makes a lease. The lease expires if it is not renewed within its time to live.
type GrantData struct {
	Namespace string `json:"namespace,omitempty"`
	TTLMillis int    `json:"ttlMs"` // time to live in milliseconds, from 500 to 3,600,000
}

// LeaseData names a lease, for keepAlive and revoke.
type LeaseData struct {
	Namespace string `json:"namespace,omitempty"`
	Lease     string `json:"lease"`
}

// LeaseAnswer answers grant and keepAlive.
type LeaseAnswer struct {
	Lease     string `json:"lease"`
	TTLMillis int    `json:"ttlMs"`
}

// ListLeasesData requests a page of a namespace's leases and of the locks, permits and other things
// that they hold. A page is a range of the namespace's names, sorted by their bytes. So a lease and
// the things that it holds may be on different pages.
type ListLeasesData struct {
	Namespace string `json:"namespace,omitempty"`
	// Limit is the number of names that the server examines for this page, from 1 to MaxList. The
	// value 0 means DefaultList.
	Limit int `json:"limit,omitempty"`
	// Cursor is the Cursor in the answer with the preceding page. It is empty for the first page.
	Cursor string `json:"cursor,omitempty"`
}

// ListLeasesAnswer has the leases of a page, and those things on the page that a lease holds. The
// lease that holds a thing may be on another page.
type ListLeasesAnswer struct {
	Leases []LeaseState `json:"leases"`
	Held   []Held       `json:"held"`
	// Unread is the number of names of the page that the server could not read.
	Unread int `json:"unread,omitempty"`
	// Cursor requests the next page. It is empty if this is the last page.
	Cursor string `json:"cursor,omitempty"`
}

// LeaseState describes one lease.
type LeaseState struct {
	Lease     string `json:"lease"`
	TTLMillis int    `json:"ttlMs"`
	// LeftMillis is the longest time, in milliseconds, that the lease can still live without a
	// renewal. It counts from the moment when this server first saw the newest renewal.
	LeftMillis int `json:"leftMs"`
	// the node whose server granted the lease; empty if the node's name was too long
	Node string `json:"node,omitempty"`
	// Holder is the program that was granted the lease. It is empty if another server granted the
	// lease, or if this server has restarted since.
	Holder string `json:"holder,omitempty"`
}

// These are the kinds of things that a lease can hold.
const (
	HeldKey      = "key"
	HeldLock     = "lock"
	HeldElection = "election"
	HeldPermit   = "permit"  // a permit of a semaphore, named SEMAPHORE/NUMBER
	HeldService  = "service" // an instance of a service, named SERVICE/INSTANCE
)

// Held describes a thing that a lease holds. It ends when the lease ends.
type Held struct {
	Lease string `json:"lease"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// LockData requests a lock, leadership (campaign) or a permit of a semaphore (acquire). For
// campaign, Value is what the leader publishes. For acquire, Permits is the size of the semaphore.
// Without Lease, the server makes a lease of TTLMillis, and keeps it alive as long as this
// connection lasts.
type LockData struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Value     string `json:"value,omitempty"`
	Permits   int    `json:"permits,omitempty"`
	Lease     string `json:"lease,omitempty"`
	TTLMillis int    `json:"ttlMs,omitempty"` // time to live of the new lease in milliseconds; 0 means 10,000
	// time to wait in milliseconds; nil means the request's timeout, and 0 means not to wait
	WaitMillis *int `json:"waitMs,omitempty"`
}

// LockAnswer reports that the caller holds the lock, leadership or permit until Lease expires or
// the caller releases it. Token is the fencing token, a 64-bit decimal number. The token grows with
// each holder of the name or, for a semaphore, with each holder of the same permit.
type LockAnswer struct {
	Held  bool   `json:"held"`
	Name  string `json:"name"`
	Token string `json:"token,omitempty"`
	Lease string `json:"lease,omitempty"`
}

// UnlockData releases a lock, leadership or a permit. Token identifies what to release. It is the
// data of unlock, resign and release.
type UnlockData struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Token     string `json:"token"`
}

// LeaderData requests the present leader.
type LeaderData struct {
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// LeaderAnswer describes the leader.
type LeaderAnswer struct {
	Found bool   `json:"found"`
	Value string `json:"value,omitempty"`
	Token string `json:"token,omitempty"`
}

// ServiceData registers an instance of a service. If Instance is empty, the server chooses the name
// of the instance.
type ServiceData struct {
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service"`
	Instance  string `json:"instance,omitempty"`
	Address   string `json:"address,omitempty"` // address of the instance as host:port
	Lease     string `json:"lease,omitempty"`
	TTLMillis int    `json:"ttlMs,omitempty"` // time to live of the new lease in milliseconds; 0 means 10,000
}

// Instance is a live instance of a service.
type Instance struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Node     string `json:"node,omitempty"`
	Lease    string `json:"lease,omitempty"`
}

// GetServiceData requests the instances of a service. If Order is "", the list begins with a
// different instance in each call (round-robin). If it is "nearest", the instances on this node
// come first.
type GetServiceData struct {
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service"`
	Order     string `json:"order,omitempty"`
}

// ServiceAnswer has the live instances of a service. The server answers watchService once at the
// beginning, and again after each change.
type ServiceAnswer struct {
	Service   string     `json:"service"`
	Instances []Instance `json:"instances"`
}
