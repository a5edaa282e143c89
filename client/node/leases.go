package node

import (
	"context"
	"strings"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// LeaseState describes a lease that exists, and what is bound to it.
type LeaseState struct {
	Lease
	// Left is an upper bound for the time that the lease lives unless it is renewed. It counts from
	// the moment when the node's server first saw the newest renewal.
	Left time.Duration
	Node string // the node that granted the lease; "" if the node's name was too long
	// Holder is the program to which the lease was granted. It is "" if another node's server
	// granted the lease, or if this node's server has been restarted since.
	Holder string
	Holds  []Holding
}

// Holding is something that is bound to a lease and ends with it. Kind is "key", "lock",
// "election", "permit" or "service". The name of a permit is SEMAPHORE/NUMBER, and the name of a
// service's instance is SERVICE/INSTANCE.
type Holding struct{ Kind, Name string }

// Leases reads the leases of the namespace, in the order of their names, and what is bound to each.
// It reads all names of the namespace, so operators use it, and programs should not call it in a
// loop. A pod gets only the leases that this node's server granted to the pod's own processes.
// unread counts the names that could not be read; the list of what is bound to leases may then be
// incomplete.
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

// withoutLeases explains err if the reason is that the server does not know the function
// listLeases.
func (c *Client) withoutLeases(err error) error {
	if CodeOf(err) != CodeInvalidArgument || !strings.Contains(err.Error(), "there is no function") {
		return err
	}
	return &Error{Code: CodeInvalidArgument, Do: "update the node's server",
		Message: "the node's server (" + c.Info().Server + ") is older than listLeases"}
}
