package leadership

import (
	"context"
	"log/slog"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/etcdstore"
)

// Config says how a process becomes leader, and what the process does as leader.
type Config struct {
	// Etcd stores the state, and elects the leader. If it is nil, this process is alone, and its
	// state is in Store.
	Etcd  *Etcd
	Store saved.Store
	// Identity identifies this process to the other candidates.
	Identity etcdstore.Identity
	// StandBy is called with each new leader.
	StandBy func(leader etcdstore.Identity)
	// Lead leads until ctx ends, which is the end of the term. It returns the reason for the end.
	Lead func(ctx context.Context, t *Term) error
	Log  *slog.Logger
}

// Term is the time for which this process leads.
type Term struct {
	Elected *etcdstore.Term  // nil without etcd
	Etcd    *clientv3.Client // nil without etcd

	store saved.Store
}

// retryPause is the time between the end of a term, or of a campaign that failed, and the next
// campaign.
const retryPause = time.Second

// Run leads again and again until ctx ends. A process without etcd leads only once, and Run
// returns what Lead returns.
func Run(ctx context.Context, c Config) error {
	if c.Etcd == nil {
		return c.Lead(ctx, &Term{store: c.Store})
	}
	for ctx.Err() == nil {
		err := c.campaign(ctx)
		if ctx.Err() != nil {
			break
		}
		c.Log.Warn("not leading", "error", err)
		select {
		case <-ctx.Done():
		case <-time.After(retryPause):
		}
	}
	return context.Cause(ctx)
}

// campaign waits until this process leads, leads for one term, and returns the reason for the end
// of the term.
func (c Config) campaign(ctx context.Context) error {
	client, err := c.Etcd.Connect(context.WithoutCancel(ctx)) // the client must outlive ctx, because resigning needs it
	if err != nil {
		return err
	}
	defer client.Close()
	candidate := &etcdstore.Candidate{Client: client, Prefix: c.Etcd.KeyPrefix(), Identity: c.Identity, Log: c.Log}
	elected, err := candidate.Campaign(ctx, c.StandBy)
	if err != nil {
		return err
	}
	defer elected.Resign()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go func() {
		select {
		case <-ctx.Done():
		case <-elected.Over():
			end(elected.Err())
		}
	}()
	return c.Lead(ctx, &Term{Elected: elected, Etcd: client})
}
