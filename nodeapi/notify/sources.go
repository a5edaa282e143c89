package notify

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/fromadmin"
)

// source describes who sends the notifications of a chain, and their format.
type source struct {
	chain   uint8
	service netip.AddrPort
	profile wire.Profile
}

// sources has the sources of all chains. It is never changed after it was made.
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
		for _, at := range services { // this loop has one iteration, because services has one address here
			s := source{chains[i].ID, at, profile}
			out.all = append(out.all, s)
			out.byAddr[at] = s
		}
	}
	slices.SortFunc(out.all, func(a, b source) int { return cmp.Compare(a.chain, b.chain) })
	return out, nil
}

// has reports whether the chain with this number is known.
func (s *sources) has(chain uint8) bool {
	_, ok := slices.BinarySearchFunc(s.all, chain, func(x source, c uint8) int { return cmp.Compare(x.chain, c) })
	return ok
}
