package server

import (
	"context"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/stream"
	"github.com/netcraq/netcraq/nodeapi/cell"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

const maxID = 1<<53 - 1 // the largest number that the JSON libraries of all languages keep exactly

// function is one function of the API.
type function struct {
	writes bool
	waits  bool // whether the function may wait for other callers; it then stops when its own caller has disconnected
	// short is set for functions that compute little. Such a function must call Done on its
	// context, or store.SoonAnswered, before it waits: see Server.work.
	short bool
	// requests returns the number of requests that a request counts as. It is nil if that is always
	// one.
	requests func(data any) int
	// watches returns the number of keys and prefixes that a request follows. It is set only for
	// functions that send several answers.
	watches func(data any) int
	read    func(f rpc.Format, raw []byte) (any, error)
	// inline is set for functions that the reading goroutine executes at once, in order. For all
	// other functions, run is set.
	inline func(k *call, data any) (any, error)
	run    func(ctx context.Context, k *call, data any) (any, error)
	// stays checks whether an answer is still true before the answer is sent again. It is set only
	// for functions whose answer is about a current state.
	stays func(ctx context.Context, k *call, data, answer any) error
}

func reader[D any](f rpc.Format, raw []byte) (any, error) {
	d := new(D)
	if len(raw) == 0 {
		return d, nil
	}
	return d, f.Data(raw, d)
}

func inline[D any](do func(k *call, d *D) (any, error)) *function {
	return &function{read: reader[D], inline: func(k *call, data any) (any, error) { return do(k, data.(*D)) }}
}

func reads[D any](do func(ctx context.Context, k *call, d *D) (any, error)) *function {
	return &function{read: reader[D],
		run: func(ctx context.Context, k *call, data any) (any, error) { return do(ctx, k, data.(*D)) }}
}

// counting makes each request of a function count as several requests. The function requests
// returns their number.
func counting[D any](f *function, requests func(d *D) int) *function {
	f.requests = func(data any) int { return requests(data.(*D)) }
	return f
}

func writes[D any](do func(ctx context.Context, k *call, d *D) (any, error)) *function {
	f := reads(do)
	f.writes = true
	return f
}

// keysOfGetMany returns the number of requests that a getMany counts as. In general, a request that
// names several keys, or creates several partitions, counts as that many requests. If the number of
// partitions is not valid, it does not count.
func keysOfGetMany(d *nodeapi.GetManyData) int   { return len(d.Keys) }
func keysOfTransact(d *nodeapi.TransactData) int { return len(d.Compare) + len(d.Write) }
func partitionsOf(d *nodeapi.OpenStreamData) int {
	if d.Config == nil || d.Config.Partitions > stream.MaxPartitions {
		return 1
	}
	return 1 + d.Config.Partitions
}

func waits[D any](do func(ctx context.Context, k *call, d *D) (any, error)) *function {
	f := writes(do)
	f.waits = true
	return f
}

func watches[D any](cost func(*D) int, do func(ctx context.Context, k *call, d *D) (any, error)) *function {
	f := reads(do)
	f.watches = func(data any) int { return cost(data.(*D)) }
	return f
}

// short sets the field short of a function.
func short(f *function) *function {
	f.short = true
	return f
}

// checked sets the field stays of a function.
func checked[D, A any](f *function, stays func(ctx context.Context, k *call, d *D, a *A) error) *function {
	f.stays = func(ctx context.Context, k *call, data, answer any) error {
		return stays(ctx, k, data.(*D), answer.(*A))
	}
	return f
}

// functions has all functions of the API by name.
var functions map[string]*function

func init() {
	functions = map[string]*function{
		nodeapi.FuncHello:     inline(hello),
		nodeapi.FuncPing:      inline(func(*call, *struct{}) (any, error) { return struct{}{}, nil }),
		nodeapi.FuncCancel:    inline(cancel),
		nodeapi.FuncGet:       short(reads(get)),
		nodeapi.FuncGetMany:   counting(reads(getMany), keysOfGetMany),
		nodeapi.FuncList:      reads(listKeys),
		nodeapi.FuncPut:       short(writes(put)),
		nodeapi.FuncCAS:       short(writes(cas)),
		nodeapi.FuncDelete:    short(writes(remove)),
		nodeapi.FuncIncrement: short(writes(increment)),
		nodeapi.FuncTransact:  counting(writes(transact), keysOfTransact),
		nodeapi.FuncWatch:     watches(watchCost, watch),

		nodeapi.FuncGrant:     checked(writes(grant), grantStays),
		nodeapi.FuncKeepAlive: checked(writes(keepAlive), keepAliveStays),
		nodeapi.FuncRevoke:    writes(revoke),

		nodeapi.FuncListLeases: reads(listLeases),

		nodeapi.FuncLock:     checked(short(waits(lock)), lockStays),
		nodeapi.FuncUnlock:   short(writes(unlock)),
		nodeapi.FuncCampaign: checked(short(waits(campaign)), leadershipStays),
		nodeapi.FuncResign:   short(writes(resign)),
		nodeapi.FuncLeader:   reads(leader),
		nodeapi.FuncAcquire:  checked(short(waits(acquire)), permitStays),
		nodeapi.FuncRelease:  short(writes(release)),

		nodeapi.FuncRegisterService:   checked(writes(registerService), registrationStays),
		nodeapi.FuncDeregisterService: writes(deregisterService),
		nodeapi.FuncGetService:        reads(getService),
		nodeapi.FuncWatchService:      watches(func(*nodeapi.GetServiceData) int { return 1 }, watchService),

		nodeapi.FuncOpenStream:   counting(reads(openStream), partitionsOf),
		nodeapi.FuncDeleteStream: writes(deleteStream),
		nodeapi.FuncListStreams:  reads(listStreams),
		nodeapi.FuncAppend:       writes(appendRecords),
		nodeapi.FuncRead:         reads(readRecords),
		nodeapi.FuncSubscribe: watches(func(d *nodeapi.SubscribeData) int { return max(1, len(d.Partitions)) },
			subscribe),

		nodeapi.FuncMakeFile: watches(func(*nodeapi.MakeFileData) int { return 1 }, makeFile),
		nodeapi.FuncSealFile: writes(sealFile),
		nodeapi.FuncOpenFile: watches(func(*nodeapi.OpenFileData) int { return 1 }, openFile),

		nodeapi.FuncOpenFiles:   short(reads(openFiles)),
		nodeapi.FuncRewriteFile: waits(rewriteFile),
	}
}

// understand finds the function of a request, and parses the data of the request.
func (k *call) understand(r rpc.Request) (any, *nodeapi.Error) {
	k.req = r
	k.req.Data = nil
	k.f = functions[r.Func]
	switch {
	case k.f == nil && r.Func == "":
		return nil, rpc.Invalid("the request has no \"func\"")
	case k.f == nil:
		return nil, rpc.Invalid("there is no function %.64q", r.Func)
	case r.TimeoutMillis < 0 || r.TimeoutMillis > nodeapi.MaxTimeoutMillis:
		return nil, rpc.Invalid("timeoutMs is %d; it is at most %d", r.TimeoutMillis, nodeapi.MaxTimeoutMillis)
	case r.Once != 0 && k.f.writes && k.client == nil:
		return nil, nodeapi.Errorf(nodeapi.CodeInvalidArgument, "send hello first, with \"client\"",
			"a request with \"once\" on a connection whose hello named no client")
	case r.Once > maxID || r.Done > maxID:
		return nil, rpc.Invalid("once and done are at most 2^53-1")
	}
	data, err := k.f.read(k.c.framing, r.Data)
	if err != nil {
		return nil, rpc.Invalid("the data of %s: %s", r.Func, rpc.Unreadable(err))
	}
	if r.Done != 0 && k.client != nil {
		k.client.done(r.Done)
	}
	return data, nil
}

// hello records which client uses the connection.
func hello(k *call, d *nodeapi.Hello) (any, error) {
	c, s := k.c, k.c.s
	if d.Namespace != "" {
		if err := checkNamespace(d.Namespace); err != nil {
			return nil, err
		}
		k.namespace = d.Namespace
	}
	known := false
	if d.Client != "" {
		if !isClient(d.Client) {
			return nil, rpc.Invalid("client is %.40q; it is 32 hexadecimal digits, drawn at random", d.Client)
		}
		client, before, err := s.once.join(c.part.subject, c.peer.Principal()+"/"+d.Client)
		if err != nil {
			return nil, err
		}
		if c.client != nil {
			c.client.leave()
		}
		c.client, known = client, before
	}
	c.namespace = k.namespace
	stage := s.at()
	if c.mu.Lock(); d.DrainNotice {
		c.notices, c.noticed = true, stage != serving
	}
	c.mu.Unlock()
	return &nodeapi.HelloAnswer{Server: s.config.Name, Node: s.config.Node, Namespace: k.namespace, Known: known,
		MaxValue: s.config.Store.MaxValue(k.namespace) - cell.Plain.Overhead(),
		InFlight: s.limits.inFlight, MaxBytes: nodeapi.MaxMessage,
		Durable: s.config.Durable(k.namespace), Draining: stage != serving, MaxList: nodeapi.MaxList}, nil
}

func isClient(s string) bool {
	for _, r := range s {
		if (r < '0' || r > '9') && (r < 'a' || r > 'f') && (r < 'A' || r > 'F') {
			return false
		}
	}
	return len(s) == 32
}

// cancel cancels a request under way on the same connection.
func cancel(k *call, d *nodeapi.CancelData) (any, error) {
	c := k.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if under := c.calls[d.ID]; under != nil {
		under.cancel()
	}
	return struct{}{}, nil
}
