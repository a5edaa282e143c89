package kube

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	networking "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// checkPrefixes returns an error if --services or --switches overlaps a prefix that is used for
// something else. The node sends packets for --services and --switches to its switch. So an overlap
// would cut off the other use.
func (o *Options) checkPrefixes(self podroutes.Node, services []netip.Prefix) error {
	if o.Chained { // another plugin then chooses pods' addresses, whatever the Node object says
		self.PodCIDRs = nil
	}
	for i, p := range o.reserved() {
		taken := self.Overlapping(p)
		for _, x := range services {
			if taken == "" && p.Overlaps(x) {
				taken = fmt.Sprintf("the addresses of the cluster's Services (%s)", x)
			}
		}
		if taken != "" {
			name := []string{"services", "switches"}[i]
			return fmt.Errorf("--%s %s overlaps %s: give --%s, in the chart the value %s, a prefix that nothing else in the "+
				"cluster has", name, p, taken, name, name)
		}
	}
	return nil
}

// reserved returns the prefixes that lead to the switch. These are --services and, if the switches
// are on the nodes, --switches.
func (o *Options) reserved() []netip.Prefix {
	if o.Fabric != nil {
		return []netip.Prefix{o.Services}
	}
	return []netip.Prefix{o.Services, o.Switches}
}

// serviceRanges returns the prefixes of the cluster's Services. Before Kubernetes 1.33 the API
// server does not report them. In this case, serviceRanges returns only the API server's own
// address, which is in one of them.
func serviceRanges(ctx context.Context, r client.Reader) (out []netip.Prefix, err error) {
	if a, err := netip.ParseAddr(os.Getenv("KUBERNETES_SERVICE_HOST")); err == nil {
		out = append(out, netip.PrefixFrom(a, a.BitLen()))
	}
	var list networking.ServiceCIDRList
	if err := r.List(ctx, &list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return out, nil
	} else if err != nil {
		return out, fmt.Errorf("listing the ranges of the Services' addresses: %w", err)
	}
	for _, s := range list.Items {
		for _, text := range s.Spec.CIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				out = append(out, p)
			}
		}
	}
	return out, nil
}
