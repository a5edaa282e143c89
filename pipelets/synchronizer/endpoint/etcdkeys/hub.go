package etcdkeys

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/exactlyonce"
	"github.com/netcraq/netcraq/pipelets/synchronizer/endpoint"
)

const (
	// smallOps and smallBytes are the maximum size of a commit that is merged with other commits. A
	// larger commit is a separate transaction, which starts at once.
	smallOps   = 16
	smallBytes = 64 << 10
	// togetherBytes is the maximum size of a merged transaction, in bytes. An etcd accepts 1.5 MiB.
	togetherBytes = 1 << 20
	// atOnce is the maximum number of merged transactions that run concurrently.
	atOnce = 2
)

// Hub lets the sinks of a process share connections and transactions, if they write to the same
// etcd as the same user. Small commits that arrive while other transactions are in progress are
// merged into one transaction. Each commit keeps its condition, so the merged transaction succeeds
// for all commits or for none. If it fails, each commit is tried separately, and gets its own
// result. With a nil Hub, sinks share nothing.
type Hub struct {
	mu  sync.Mutex
	all map[string]*link
}

// NewHub makes a hub.
func NewHub() *Hub { return &Hub{all: map[string]*link{}} }

// link is a connection to an etcd that several sinks share.
type link struct {
	hub    *Hub
	key    string
	client *clientv3.Client
	sinks  int // number of sinks that use the link; guarded by hub.mu

	mu      sync.Mutex
	waiting []*commit
	under   int // number of transactions in progress
}

// commit is one commit of a sink.
type commit struct {
	state    string // the key that holds the state
	revision int64
	ops      []clientv3.Op // the operations, including the write of the state
	bytes    int
	done     chan struct{}
	after    int64 // revision of the state's key after the commit
	err      error
}

// connect returns the link for an etcd and a user. If a secret has changed, its user counts as
// another user.
func (h *Hub) connect(spec pipeletapi.Etcd, secrets endpoint.Secrets) (*link, error) {
	if h == nil {
		c, err := connect(spec, secrets)
		return &link{client: c}, err
	}
	var values map[string][]byte
	if spec.Secret != "" {
		ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
		defer cancel()
		var err error
		if values, err = secrets.Read(ctx, spec.Secret); err != nil {
			return nil, exactlyonce.Errorf(exactlyonce.Refused, "the secret %s: %w", spec.Secret, err)
		}
	}
	text, err := json.Marshal([]any{spec.Endpoints, spec.Secret != "", values})
	if err != nil {
		return nil, err
	}
	key := fmt.Sprintf("%x", sha256.Sum256(text))
	h.mu.Lock()
	defer h.mu.Unlock()
	if l := h.all[key]; l != nil {
		l.sinks++
		return l, nil
	}
	c, err := connect(spec, fixed(values))
	if err != nil {
		return nil, err
	}
	l := &link{hub: h, key: key, client: c, sinks: 1}
	h.all[key] = l
	return l, nil
}

// fixed is the content of a secret that was already read.
type fixed map[string][]byte

// Read implements endpoint.Secrets.
func (f fixed) Read(context.Context, string) (map[string][]byte, error) { return f, nil }

// leave removes one sink from the link. The last sink closes the connection.
func (l *link) leave() error {
	if l.hub != nil {
		l.hub.mu.Lock()
		l.sinks--
		last := l.sinks == 0
		if last {
			delete(l.hub.all, l.key)
		}
		l.hub.mu.Unlock()
		if !last {
			return nil
		}
	}
	return l.client.Close()
}

// do executes a commit, and returns the revision of the state's key after it.
func (l *link) do(ctx context.Context, c *commit) (int64, error) {
	for _, op := range c.ops {
		c.bytes += len(op.KeyBytes()) + len(op.ValueBytes())
	}
	if l.hub == nil || len(c.ops) > smallOps || c.bytes > smallBytes {
		return l.alone(ctx, c)
	}
	c.done = make(chan struct{})
	l.mu.Lock()
	l.waiting = append(l.waiting, c)
	if l.under < atOnce {
		l.under++
		go l.work()
	}
	l.mu.Unlock()
	select {
	case <-c.done:
		return c.after, c.err
	case <-ctx.Done():
	}
	l.mu.Lock()
	i := slices.Index(l.waiting, c)
	if i >= 0 { // the commit was still waiting, so removing it prevents that it is sent
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	l.mu.Unlock()
	if i >= 0 {
		return 0, exactlyonce.Errorf(exactlyonce.Temporary, "writing to the destination: %w", ctx.Err())
	}
	<-c.done // the commit was already sent, so its transaction ends soon
	return c.after, c.err
}

// work executes waiting commits until no commit waits.
func (l *link) work() {
	for {
		l.mu.Lock()
		some := l.some()
		if len(some) == 0 {
			l.under--
			l.mu.Unlock()
			return
		}
		l.mu.Unlock()
		l.together(some)
	}
}

// some removes and returns the first waiting commits, as many as fit into one transaction without
// duplicate keys. The caller holds the lock.
func (l *link) some() (some []*commit) {
	ops, bytes, keys := 0, 0, map[string]bool{}
	fits := func(c *commit) bool {
		if ops+len(c.ops) > maxRows+1 || bytes+c.bytes > togetherBytes {
			return false
		}
		return !slices.ContainsFunc(c.ops, func(op clientv3.Op) bool { return keys[string(op.KeyBytes())] })
	}
	var rest []*commit
	for i, c := range l.waiting {
		if !fits(c) {
			rest = append(rest, l.waiting[i:]...)
			break
		}
		some = append(some, c)
		ops, bytes = ops+len(c.ops), bytes+c.bytes
		for _, op := range c.ops {
			keys[string(op.KeyBytes())] = true
		}
	}
	l.waiting = rest
	return some
}

// together executes commits as one transaction. If that fails, it executes each commit separately.
func (l *link) together(all []*commit) {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	if len(all) > 1 {
		var conditions []clientv3.Cmp
		var ops []clientv3.Op
		for _, c := range all {
			conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(c.state), "=", c.revision))
			ops = append(ops, c.ops...)
		}
		r, err := l.client.Txn(ctx).If(conditions...).Then(ops...).Commit()
		if err == nil && r.Succeeded {
			for _, c := range all {
				c.after = r.Header.Revision
				close(c.done)
			}
			return
		}
		// After some errors the merged transaction may have been executed. The conditions prevent
		// that a commit is executed a second time.
	}
	var group sync.WaitGroup
	for _, c := range all {
		group.Go(func() {
			defer close(c.done)
			ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
			defer cancel()
			c.after, c.err = l.alone(ctx, c)
		})
	}
	group.Wait()
}

// alone executes one commit as a transaction.
func (l *link) alone(ctx context.Context, c *commit) (int64, error) {
	same := clientv3.Compare(clientv3.ModRevision(c.state), "=", c.revision)
	r, err := l.client.Txn(ctx).If(same).Then(c.ops...).Commit()
	switch {
	case err != nil:
		return 0, fault(err, "writing to the destination")
	case !r.Succeeded:
		return 0, exactlyonce.Errorf(exactlyonce.Conflict, "another worker has written for this pipelet")
	}
	return r.Header.Revision, nil
}
