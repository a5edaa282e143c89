package kube

import (
	"net/netip"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestPrefixesOverlap checks that an agent refuses prefixes that are used for something else. The
// error names the prefix, its other use, and the remedy.
func TestPrefixesOverlap(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
	services, err := serviceRanges(t.Context(), fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
		&networking.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
			Spec: networking.ServiceCIDRSpec{CIDRs: []string{"10.1.0.0/16", "fd00:1::/112"}}}).Build())
	testutil.Must(t, err)
	for _, c := range []struct {
		services, switches, address, pods string
		chained                           bool
		want                              string
	}{
		{"10.0.254.0/24", "10.0.255.0/24", "192.168.0.1", "10.244.1.0/24", false, ""},
		{"10.0.254.0/24", "10.0.255.0/24", "10.0.255.7", "10.244.1.0/24", false, "--switches 10.0.255.0/24 overlaps the address of node n (10.0.255.7): give --switches"},
		{"10.0.254.0/24", "10.0.255.0/24", "192.168.0.1", "10.0.254.0/24", false, "--services 10.0.254.0/24 overlaps the range of the pods of node n (10.0.254.0/24)"},
		{"10.0.254.0/24", "10.0.255.0/24", "192.168.0.1", "10.0.0.0/8", true, ""},
		{"10.1.2.0/24", "10.0.255.0/24", "192.168.0.1", "10.244.1.0/24", true, "the addresses of the cluster's Services (10.1.0.0/16): give --services, in the chart the value services"},
		{"10.0.0.0/24", "10.0.255.0/24", "192.168.0.1", "10.244.1.0/24", false, "the addresses of the cluster's Services (10.0.0.1/32)"},
	} {
		o := &Options{Services: netip.MustParsePrefix(c.services), Switches: netip.MustParsePrefix(c.switches),
			Chained: c.chained}
		err := o.checkPrefixes(podroutes.Node{Name: "n", Address: netip.MustParseAddr(c.address),
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix(c.pods)}}, services)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
