package gateway

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/endpointsharding"
	"google.golang.org/grpc/balancer/pickfirst"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// memberPolicy is the name of the gRPC load-balancing policy for members. A call goes to the member
// that its context names, if that member is connected. Otherwise it goes to the connected members
// in turn, as calls of etcd's own clients do (gRPC's round_robin).
const memberPolicy = "etcd_monitor_member"

// memberConfig is the service configuration that selects the policy.
const memberConfig = `{"loadBalancingConfig":[{"` + memberPolicy + `":{}}]}`

func init() { balancer.Register(memberBuilder{}) }

// choice names the member that a call should go to.
type choice struct {
	address string // address of the member, as dialAddress returns it
	only    bool   // true if only this member may get the call
	taken   atomic.Bool
}

type choiceKey struct{}

// withChoice returns a context whose call goes to the chosen member if that member is connected.
func withChoice(ctx context.Context, c *choice) context.Context {
	return context.WithValue(ctx, choiceKey{}, c)
}

// toMember returns a context whose call goes only to the member at an endpoint.
func toMember(ctx context.Context, endpoint string) context.Context {
	return withChoice(ctx, &choice{address: dialAddress(endpoint), only: true})
}

// dialAddress returns the address that gRPC dials for an endpoint. It matches the package endpoint
// inside etcd's client.
func dialAddress(endpoint string) string {
	scheme, rest, ok := strings.Cut(endpoint, ":")
	if !ok {
		return endpoint
	}
	switch scheme {
	case "http", "https":
		if u, err := url.Parse(endpoint); err == nil {
			return u.Host
		}
	case "unix", "unixs":
		if strings.HasPrefix(rest, "///") {
			return "unix:" + rest
		}
		return "unix:" + strings.TrimPrefix(rest, "//")
	}
	return endpoint
}

type memberBuilder struct{}

// Name implements [balancer.Builder].
func (memberBuilder) Name() string { return memberPolicy }

// Build implements [balancer.Builder].
func (memberBuilder) Build(cc balancer.ClientConn, o balancer.BuildOptions) balancer.Balancer {
	return endpointsharding.NewBalancer(memberConn{cc}, o, balancer.Get(pickfirst.Name).Build,
		endpointsharding.Options{})
}

// memberConn makes pickers that can pick a member by its address.
type memberConn struct{ balancer.ClientConn }

// UpdateState implements [balancer.ClientConn].
func (c memberConn) UpdateState(s balancer.State) {
	p := memberPicker{turn: s.Picker, connected: map[string]balancer.Picker{}}
	for _, child := range endpointsharding.ChildStatesFromPicker(s.Picker) {
		if child.State.ConnectivityState != connectivity.Ready {
			continue
		}
		for _, a := range child.Endpoint.Addresses {
			p.connected[a.Addr] = child.State.Picker
		}
	}
	s.Picker = p
	c.ClientConn.UpdateState(s)
}

type memberPicker struct {
	turn      balancer.Picker
	connected map[string]balancer.Picker // pickers by the member's address
}

// Pick implements [balancer.Picker].
func (p memberPicker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	c, _ := info.Ctx.Value(choiceKey{}).(*choice)
	if c == nil {
		return p.turn.Pick(info)
	}
	member := p.connected[c.address]
	c.taken.Store(member != nil)
	switch {
	case member != nil:
		return member.Pick(info)
	case c.only: // a status error ends the call, even if the call would wait for a connection
		return balancer.PickResult{}, status.Errorf(codes.Unavailable, "gateway: there is no connection to etcd at %s", c.address)
	}
	return p.turn.Pick(info)
}
