package operate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/fromadmin"
)

// target is the destination of a command's queries.
type target struct {
	addresses []netip.AddrPort
	services  []netip.AddrPort // further source addresses of answers, besides the queried addresses
	profile   wire.Profile
	chain     *admin.Chain // nil if the command did not contact the controller
}

// key is a key that the user has named, and its KEY_ID.
type key struct {
	id   wire.Key
	name string // name that the user gave; empty if the user gave a KEY_ID
}

func (k key) String() string {
	if k.name == "" {
		return k.id.String()
	}
	return fmt.Sprintf("%v (%s)", k.id, k.name)
}

// notPlaced returns the error for a name that is not in the controller's directory.
func notPlaced(name string) error {
	return fmt.Errorf("the key %q is not placed in the network: %w", name, client.ErrNotFound)
}

// findKey converts KEY to a KEY_ID.
func (c *cli) findKey(ctx context.Context, s string) (key, error) {
	name, isName := strings.CutPrefix(s, "name:")
	if !isName {
		if id, err := wire.ParseKey(s); err == nil {
			return key{id: id}, nil
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	k, err := c.api.Lookup(ctx, name)
	if errors.Is(err, &admin.Error{Code: admin.CodeNotFound}) {
		return key{}, notPlaced(name)
	}
	if err != nil {
		return key{}, fmt.Errorf("cannot look up the name %q: %w", name, err)
	}
	return key{wire.Key(k.KeyID), name}, nil
}

// findTarget determines where to send queries for keys of a chain. It uses the user's options, and
// asks the controller for what they omit.
func (c *cli) findTarget(ctx context.Context, chain func(admin.Chain) bool, described string) (*target, error) {
	t := &target{}
	for _, given := range []struct {
		flag  string
		names []string
		to    *[]netip.AddrPort
	}{{"--server", c.servers, &t.addresses}, {"--service", c.services, &t.services}} {
		for _, s := range given.names {
			a, err := resolve(ctx, given.flag, s)
			if err != nil {
				return nil, err
			}
			*given.to = append(*given.to, a)
		}
	}
	if c.valueBits != "" {
		t.profile, _ = wire.ParseProfile(c.valueBits) // prepare has already checked valueBits
	}
	if len(t.addresses) > 0 && t.profile != 0 {
		return t, nil
	}
	ask, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	chains, err := c.api.Chains(ask)
	if err != nil {
		if len(t.addresses) > 0 && !c.adminGiven {
			t.profile = wire.Profile128
			return t, nil
		}
		return nil, fmt.Errorf("%w\nwithout a controller, name the chain's address with --server and the width of values with --value-bits", err)
	}
	i := slices.IndexFunc(chains, chain)
	if i < 0 && len(t.addresses) > 0 && !c.adminGiven { // the controller belongs to another network
		t.profile = wire.Profile128
		return t, nil
	}
	if i < 0 {
		var have []string
		for _, ch := range chains {
			have = append(have, fmt.Sprintf("%s (%d)", ch.Name, ch.ID))
		}
		return nil, fmt.Errorf("the controller has no %s: %w; it has %s", described, &admin.Error{Code: admin.CodeNotFound, Message: "no such chain"}, list(have))
	}
	t.chain = &chains[i]
	if t.profile == 0 {
		if t.profile, err = fromadmin.Profile(t.chain); err != nil {
			return nil, err
		}
	}
	if len(t.addresses) == 0 {
		if t.addresses, err = fromadmin.Addresses(t.chain); err != nil {
			return nil, err
		}
	}
	if len(t.services) == 0 {
		if t.services, err = fromadmin.Services(t.chain); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (c *cli) targetOf(ctx context.Context, k key) (*target, error) {
	return c.findTarget(ctx, func(ch admin.Chain) bool {
		return ch.ID == k.id.Chain()
	}, fmt.Sprintf("chain %d, which the KEY_ID %v belongs to", k.id.Chain(), k.id))
}

// toSwitches makes the target query these addresses of switches. Answers still come from the
// previously queried addresses.
func (t *target) toSwitches(addresses []netip.AddrPort) {
	if len(t.services) == 0 {
		t.services = t.addresses
	}
	t.addresses = addresses
}

// resolve parses a flag's ADDRESS[:PORT]. ADDRESS is an IPv4 address or a host name.
func resolve(ctx context.Context, flag, s string) (netip.AddrPort, error) {
	bad := func(err error) (netip.AddrPort, error) {
		return netip.AddrPort{}, usageError{fmt.Errorf("%s %s: %w; want ADDRESS or ADDRESS:PORT", flag, s, err)}
	}
	host, port := s, strconv.Itoa(wire.Port)
	if h, p, err := net.SplitHostPort(s); err == nil {
		host, port = h, p
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return bad(fmt.Errorf("%q is not a port", port))
	}
	if a, err := netip.ParseAddr(host); err == nil {
		if !a.Is4() {
			return bad(errors.New("switches take IPv4 only"))
		}
		return netip.AddrPortFrom(a, uint16(n)), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	if err != nil {
		return bad(err)
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(n)), nil
}

// sessionSource provides n sessions for a command that writes. If it returns nil, the command
// writes without sessions.
func (c *cli) sessionSource(ctx context.Context, n int, owner string) (client.SessionSource, error) {
	if len(c.sessions) > 0 {
		var out []client.Session
		for _, s := range c.sessions {
			id, next, ok := strings.Cut(s, ":")
			i, err1 := strconv.ParseUint(id, 10, 16)
			r, err2 := strconv.ParseUint(next, 10, 32)
			if !ok || err1 != nil || err2 != nil || i == 0 || r == 0 {
				return nil, usageError{fmt.Errorf("--session %s: want ID:NEXT-REQUEST, both from 1 upwards. A session's requests are numbered, and switches drop "+
					"numbers below the last they have seen of it", s)}
			}
			out = append(out, client.Session{ID: uint16(i), NextRequest: uint32(r)})
		}
		return client.StaticSessions(out...), nil
	}
	if len(c.servers) > 0 && !c.adminGiven {
		ask, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		if _, err := c.api.Chains(ask); err != nil {
			fmt.Fprintln(c.std.Err, c.program.Name+": no controller to lease a session from: writes are sent without one, and may be executed more than once")
			return nil, nil
		}
	}
	return fromadmin.Sessions(c.api, n, owner), nil
}

func list(s []string) string {
	if len(s) == 0 {
		return "none"
	}
	return strings.Join(s, ", ")
}
