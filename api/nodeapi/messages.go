package nodeapi

// The data of requests and answers, by function. A value is bytes. Answers contain it as text in
// Value if it is UTF-8, and otherwise as base64 in ValueBase64. A request uses either.
//
// A version is written EPOCH.SEQUENCE, as in the rest of the project. "0.0" is the version of a key
// that was never written. The later of two versions of a key has the greater epoch or, in the same
// epoch, the greater sequence.

// Hello begins a connection. It may be left out.
type Hello struct {
	// Client identifies the client on all its connections: 32 random hexadecimal digits. Needed for
	// Request.Once.
	Client string `json:"client,omitempty"`
	Agent  string `json:"agent,omitempty"` // library and version, for logs
	// Namespace is the default namespace of requests. "": the caller's own.
	Namespace string `json:"namespace,omitempty"`
	// DrainNotice makes the server notify the client when it begins to shut down: see DrainNotice.
	DrainNotice bool `json:"drainNotice,omitempty"`
}

// DrainNotice is sent once, under the id 0, to clients whose hello asked for it, when the server
// begins to shut down. The server still answers, so requests under way need not be sent again. The
// client opens a new connection, on which a successor may listen, sends all new requests there, and
// closes the old connection when it has its answers. So no call fails.
type DrainNotice struct {
	Draining bool `json:"draining"`
}

// HelloAnswer answers Hello.
type HelloAnswer struct {
	Server    string `json:"server"` // name and version
	Node      string `json:"node"`
	Namespace string `json:"namespace"`
	// Known reports whether the server has the answers to this client's earlier requests with Once,
	// so that a repeated request is executed only once. If it is false and the client has sent such
	// requests, their outcome is unknown.
	Known bool `json:"known"`
	// maximum bytes of a value, in the widest chain that the namespace may use
	MaxValue int  `json:"maxValue"`
	InFlight int  `json:"inFlight"`
	MaxBytes int  `json:"maxMessage"`
	Durable  bool `json:"durable"` // new keys of the namespace are kept in etcd
	Draining bool `json:"draining,omitempty"`
	// MaxList is the largest Limit of a list. 0: the server is too old for list.
	MaxList int `json:"maxList,omitempty"`
}

// CancelData cancels a request under way. That request is answered with CodeCanceled, or as usual
// if it is already executed. The cancel itself is answered with {}.
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

// Item is a key's state. A key without a value has Found false.
type Item struct {
	Key         string  `json:"key"`
	Found       bool    `json:"found"`
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Version     string  `json:"version"`
	Lease       string  `json:"lease,omitempty"`
	Error       *Error  `json:"error,omitempty"` // in getMany and list: why the key was not read
}

// GetManyData reads several keys, without any order between the reads.
type GetManyData struct {
	Namespace string   `json:"namespace,omitempty"`
	Keys      []string `json:"keys"`
	Eventual  bool     `json:"eventual,omitempty"`
}

// GetManyAnswer has the keys in the order of the request.
type GetManyAnswer struct {
	Items []Item `json:"items"`
}

// ListData requests a page of the keys whose names begin with Prefix ("": all of the namespace), in
// the order of the bytes of their names.
type ListData struct {
	Namespace string `json:"namespace,omitempty"`
	Prefix    string `json:"prefix,omitempty"`
	// Limit is the number of names that the server examines for this page, 1 to MaxList. 0:
	// DefaultList.
	Limit int `json:"limit,omitempty"`
	// Cursor is the Cursor of the preceding page. "": this is the first page.
	Cursor string `json:"cursor,omitempty"`
	// KeysOnly leaves out the values. Items have their versions and leases.
	KeysOnly bool `json:"keysOnly,omitempty"`
}

// ListAnswer has the keys of a page that have a value. There may be fewer than the limit, or none,
// although more pages follow. An item has an Error if its key could not be read.
type ListAnswer struct {
	Items []Item `json:"items"`
	// Cursor is the cursor of the next page. "": this is the last page.
	Cursor string `json:"cursor,omitempty"`
}

// PutData writes a value, and creates the key if it does not exist.
type PutData struct {
	Key
	Value       *string `json:"value,omitempty"`
	ValueBase64 []byte  `json:"valueBase64,omitempty"`
	Lease       string  `json:"lease,omitempty"` // the key expires with this lease
}

// PutAnswer answers put and delete.
type PutAnswer struct {
	Version string `json:"version"`
}

// CASData writes a value if the key's version is the given one ("0.0": it was never written).
// Versions come from answers. A deleted key has the version of its deletion.
type CASData struct {
	PutData
	Version string `json:"version"`
}

// CASAnswer reports whether the value was written. Item is the key's state after the call.
type CASAnswer struct {
	Swapped bool `json:"swapped"`
	Item
}

// DeleteData removes a key's value; with a Version, only if the key has that version.
type DeleteData struct {
	Key
	Version string `json:"version,omitempty"`
}

// DeleteAnswer answers DeleteData. If the key had another version, Deleted is false. Item is the
// key's state after the call.
type DeleteAnswer struct {
	Deleted bool `json:"deleted"`
	Item
}

// IncrementData adds to a value, which is a signed 64-bit decimal number as text. A missing value
// counts as 0.
type IncrementData struct {
	Key
	By *int64 `json:"by,omitempty"` // nil: 1
}

// IncrementAnswer has the sum, also as text, because JavaScript's numbers are exact only up to
// 2^53.
type IncrementAnswer struct {
	Number  int64  `json:"number"`
	Value   string `json:"value"`
	Version string `json:"version"`
}

// TransactData compares and writes durable keys of one namespace atomically: if all comparisons
// hold, all writes are executed; otherwise none is. Compare and Write have 1 to MaxTransact
// elements altogether. A key occurs at most once in each of them.
type TransactData struct {
	Namespace string          `json:"namespace,omitempty"`
	Compare   []Comparison    `json:"compare,omitempty"`
	Write     []TransactWrite `json:"write,omitempty"`
}

// Comparison is a condition on a key: exactly one of Version, Value, ValueBase64 and Absent is set.
type Comparison struct {
	Key string `json:"key"`
	// Version is the version that the key must have; "0.0": the key was never written.
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
	Lease       string  `json:"lease,omitempty"` // the key expires with this lease
	Delete      bool    `json:"delete,omitempty"`
}

// TransactAnswer reports whether the writes were executed.
type TransactAnswer struct {
	Done bool `json:"done"`
	// Versions are the versions of the written keys, in the order of Write. All of them are equal,
	// except that a key that was deleted but never written has "0.0".
	Versions []string `json:"versions,omitempty"`
	// Failed are the keys whose comparisons did not hold, in the order of Compare, if the
	// transaction was not executed. When the values would exceed MaxFailedBytes in total, the
	// remaining values are left out: such an item has Found and no value.
	Failed []Item `json:"failed,omitempty"`
}

// WatchData follows keys, or all keys whose names begin with Prefix. After maps keys to the
// versions that the caller knows; the server reports only newer ones. For a key that is not in
// After it first reports the current state.
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

// Event is a key's newest version. Overtaken counts the versions before it that were skipped.
type Event struct {
	Item
	Overtaken uint64 `json:"overtaken,omitempty"`
}

// GrantData makes a lease. The lease expires if it is not renewed within its time to live.
type GrantData struct {
	Namespace string `json:"namespace,omitempty"`
	TTLMillis int    `json:"ttlMs"` // 500 to 3,600,000
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

// ListLeasesData requests a page of a namespace's leases and of the things that leases hold. The
// pages have the names of the namespace in the order of their bytes, so a lease and the things that
// it holds may be on different pages.
type ListLeasesData struct {
	Namespace string `json:"namespace,omitempty"`
	// Limit is the number of names that the server examines for this page, 1 to MaxList. 0:
	// DefaultList.
	Limit int `json:"limit,omitempty"`
	// Cursor is the Cursor of the preceding page. "": this is the first page.
	Cursor string `json:"cursor,omitempty"`
}

// ListLeasesAnswer has the leases of a page, and the page's things that leases hold. The lease of
// such a thing may be on another page.
type ListLeasesAnswer struct {
	Leases []LeaseState `json:"leases"`
	Held   []Held       `json:"held"`
	// Unread counts the names of the page that could not be read.
	Unread int `json:"unread,omitempty"`
	// Cursor is the cursor of the next page. "": this is the last page.
	Cursor string `json:"cursor,omitempty"`
}

// LeaseState describes a lease.
type LeaseState struct {
	Lease     string `json:"lease"`
	TTLMillis int    `json:"ttlMs"`
	// LeftMillis is the longest time that the lease lives unless it is renewed. It counts from when
	// this server first saw the newest renewal.
	LeftMillis int    `json:"leftMs"`
	Node       string `json:"node,omitempty"` // the node that granted it; "": its name was too long
	// Holder is the program that was granted the lease. "": another server granted it, or this one
	// did so before it was started again.
	Holder string `json:"holder,omitempty"`
}

// Kinds of things that a lease holds.
const (
	HeldKey      = "key"
	HeldLock     = "lock"
	HeldElection = "election"
	HeldPermit   = "permit"  // a permit of a semaphore: SEMAPHORE/NUMBER
	HeldService  = "service" // an instance of a service: SERVICE/INSTANCE
)

// Held is something that a lease holds, and that ends with the lease.
type Held struct {
	Lease string `json:"lease"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
}

// LockData asks for a lock (lock), for leadership (campaign; Value is what the leader publishes),
// or for one of Permits of a semaphore (acquire). Without Lease the server makes a lease of
// TTLMillis, which it keeps alive as long as this connection lasts.
type LockData struct {
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
	Value      string `json:"value,omitempty"`
	Permits    int    `json:"permits,omitempty"`
	Lease      string `json:"lease,omitempty"`
	TTLMillis  int    `json:"ttlMs,omitempty"`  // 0: 10,000
	WaitMillis *int   `json:"waitMs,omitempty"` // nil: the request's timeout; 0: do not wait
}

// LockAnswer reports that the lock, leadership or permit is held, until Lease expires or it is
// released. Token is the fencing token: a 64-bit decimal number that grows with each holder of this
// name. For a semaphore, it grows with each holder of the same permit.
type LockAnswer struct {
	Held  bool   `json:"held"`
	Name  string `json:"name"`
	Token string `json:"token,omitempty"`
	Lease string `json:"lease,omitempty"`
}

// UnlockData releases the lock, leadership or permit with a token, for unlock, resign and release.
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

// ServiceData registers an instance of a service. Instance "": the server chooses its name.
type ServiceData struct {
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service"`
	Instance  string `json:"instance,omitempty"`
	Address   string `json:"address,omitempty"` // host:port
	Lease     string `json:"lease,omitempty"`
	TTLMillis int    `json:"ttlMs,omitempty"` // 0: 10,000
}

// Instance is a live instance of a service.
type Instance struct {
	Instance string `json:"instance"`
	Address  string `json:"address"`
	Node     string `json:"node,omitempty"`
	Lease    string `json:"lease,omitempty"`
}

// GetServiceData requests instances. Order "": round-robin, with a different first one in each
// call; "nearest": the instances on this node first.
type GetServiceData struct {
	Namespace string `json:"namespace,omitempty"`
	Service   string `json:"service"`
	Order     string `json:"order,omitempty"`
}

// ServiceAnswer has the live instances. watchService is answered with one at first, and with
// another one after each change.
type ServiceAnswer struct {
	Service   string     `json:"service"`
	Instances []Instance `json:"instances"`
}
