// Package fromadmin makes clients of the data plane from the answers of the controller's admin API.
// The API says where a chain is, how wide its values are, and which sessions a client may write
// with.
package fromadmin

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

// Addresses returns a chain's service address, followed by its members' own addresses, without
// duplicates.
func Addresses(chain *admin.Chain) ([]netip.AddrPort, error) {
	var out []netip.AddrPort
	names := []string{chain.ServiceAddress}
	for _, m := range chain.Members {
		names = append(names, m.Address)
	}
	for _, n := range names {
		if n == "" {
			continue
		}
		a, err := netip.ParseAddrPort(n) // the address has a port if the controller returned one
		if err != nil {
			var ip netip.Addr
			if ip, err = netip.ParseAddr(n); err != nil {
				return nil, fmt.Errorf("chain %s, as the controller describes it: %w", chain.Name, err)
			}
			a = netip.AddrPortFrom(ip, wire.Port)
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out, nil
}

// Services returns the chain's service address. The chain's answers come from this address,
// whichever switch got the request.
func Services(chain *admin.Chain) ([]netip.AddrPort, error) {
	return Addresses(&admin.Chain{Name: chain.Name, ServiceAddress: chain.ServiceAddress})
}

// Profile returns the profile of a chain's P4 program.
func Profile(chain *admin.Chain) (wire.Profile, error) {
	p, err := wire.ProfileOfValue(chain.ValueBytes)
	if err != nil {
		return 0, fmt.Errorf("chain %s, as the controller describes it: %w", chain.Name, err)
	}
	return p, nil
}

// Sessions returns a source that leases count sessions from the controller. owner is a name that
// operators see.
func Sessions(c *admin.Client, count int, owner string) client.SessionSource {
	return client.LeasedSessions(leaser{c}, count, owner)
}

// leaser implements client.SessionLeaser with the controller's admin API.
type leaser struct{ api *admin.Client }

func (l leaser) NewSessions(ctx context.Context, count int, owner string, host netip.Addr) (client.SessionLease,
	error) {
	r := admin.SessionsRequest{Count: count, Owner: owner}
	if host.IsValid() { // without a valid host, the controller decides whether it needs an address
		r.Address = host.String()
	}
	got, err := l.api.NewSessions(ctx, r)
	if err != nil {
		return client.SessionLease{}, err
	}
	lease := client.SessionLease{Name: got.Lease, TTL: got.TTL()}
	for _, s := range got.Sessions {
		lease.Sessions = append(lease.Sessions, client.Session{ID: s.ID, NextRequest: s.NextRequest})
	}
	return lease, nil
}

func (l leaser) KeepSessions(ctx context.Context, lease string) error {
	_, err := l.api.KeepSessions(ctx, lease)
	if errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
		return fmt.Errorf("%w: %w", client.ErrLeaseGone, err)
	}
	return err
}

func (l leaser) CloseSessions(ctx context.Context, lease string) error {
	return l.api.CloseSessions(ctx, lease)
}
