package notify

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/fromadmin"
)

// source describes the sender of a chain's notifications.
type source struct {
	chain   uint8
	service netip.AddrPort
	profile wire.Profile
}

// sources holds the sources of all chains. It is never modified.
type sources struct {
	all    []source // sorted by chain
	byAddr map[netip.AddrPort]source
}

func sourcesOf(chains []admin.Chain) (*sources, error) {
	out := &sources{byAddr: map[netip.AddrPort]source{}}
	for i := range chains {
		services, err := fromadmin.Services(&chains[i])
		if err != nil {
			return nil, err
		}
		profile, err := fromadmin.Profile(&chains[i])
		if err != nil {
			return nil, err
		}
		for _, at := range services { // there is one service address
			s := source{chains[i].ID, at, profile}
			out.all = append(out.all, s)
			out.byAddr[at] = s
		}
	}
	slices.SortFunc(out.all, func(a, b source) int { return cmp.Compare(a.chain, b.chain) })
	return out, nil
}

// has reports whether a chain is known.
func (s *sources) has(chain uint8) bool {
	_, ok := slices.BinarySearchFunc(s.all, chain, func(x source, c uint8) int { return cmp.Compare(x.chain, c) })
	return ok
}
