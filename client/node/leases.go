package node

import (
	"context"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// LeaseState is a lease that exists, and what it holds.
type LeaseState struct {
	Lease
	// Left is the longest time that the lease lives unless it is renewed. It counts from when the
	// node's server first saw the newest renewal.
	Left time.Duration
	Node string // the node that granted it; "": its name was too long
	// Holder is the program that was granted the lease. "": another node's server granted it, or
	// this node's did so before it was started again.
	Holder string
	Holds  []Holding
}

// Holding is something that a lease holds, and that ends with the lease. Kind is "key", "lock",
// "election", "permit" (of a semaphore: SEMAPHORE/NUMBER) or "service" (an instance:
// SERVICE/INSTANCE).
type Holding struct{ Kind, Name string }

// Leases reads the leases of the namespace, in the order of their names, and what each holds. It
// reads all names of the namespace, so it is for operators and not for a loop. A pod gets only the
// leases that its own processes were granted by this node's server. unread counts the names that
// could not be read; what leases hold may then be incomplete.
func (c *Client) Leases(ctx context.Context, opts ...Option) (leases []LeaseState, unread int, err error) {
	d := nodeapi.ListLeasesData{Namespace: gather(opts).namespace, Limit: nodeapi.MaxList}
	holds := map[string][]Holding{}
	for {
		a, err := askFor[nodeapi.ListLeasesAnswer](ctx, c, nodeapi.FuncListLeases, d, nil)
		if err != nil {
			return nil, 0, c.withoutLeases(err)
		}
		for _, l := range a.Leases {
			lease := Lease{ID: l.Lease, TTL: time.Duration(l.TTLMillis) * time.Millisecond}
			leases = append(leases, LeaseState{Lease: lease, Left: time.Duration(l.LeftMillis) * time.Millisecond,
				Node: l.Node, Holder: l.Holder})
		}
		for _, h := range a.Held {
			holds[h.Lease] = append(holds[h.Lease], Holding{Kind: h.Kind, Name: h.Name})
		}
		unread += a.Unread
		if a.Cursor == "" {
			break
		}
		if a.Cursor == d.Cursor {
			return nil, 0, &Error{Code: CodeInternal,
				Message: "listLeases: the server has answered with the cursor that it was given"}
		}
		d.Cursor = a.Cursor
	}
	for i := range leases {
		leases[i].Holds = holds[leases[i].ID]
	}
	return leases, unread, nil
}

// withoutLeases adds to an error that the server does not know listLeases, if that is the reason.
func (c *Client) withoutLeases(err error) error {
	if CodeOf(err) != CodeInvalidArgument || !strings.Contains(err.Error(), "there is no function") {
		return err
	}
	return &Error{Code: CodeInvalidArgument, Do: "update the node's server",
		Message: "the node's server (" + c.Info().Server + ") is older than listLeases"}
}
