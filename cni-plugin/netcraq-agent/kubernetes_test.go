package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cni-plugin/podroutes"
)

// TestInCluster checks valid command lines of an agent in a cluster, and the errors for invalid
// ones.
func TestInCluster(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a"}}],
		"clusters": [{"name": "a", "cluster": {"server": "https://192.0.2.1:6443"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("NAMESPACE", "here")
	for _, c := range []struct{ args, want string }{
		{"", ""},
		{"--etcd https://127.0.0.1:2379 --prometheus http://127.0.0.1:9090", ""},
		{"--node=", "give this node's name"},
		{"--chained", ""},
		{"--chained --mtu 1400", "leave --mtu out"},
		{"--peer 1@node2", "leave --nodes, --peer"},
		{"--prometheus http://127.0.0.1:9090", "give --etcd, too"},
		{"--gateway https://127.0.0.1:23790", "give --etcd, too"},
		{"--etcd https://127.0.0.1:2379 --gateway https://127.0.0.1:23790", ""},
		{"--etcd x --gateway-prefix /a", "end in a slash"},
		{"--services 10.0.255.0/24", "overlap"},
		{"--services 10.0.1.0/24 --services 10.0.2.0/24", "one prefix"},
		{"--services fd00::/64", "IPv4 prefix"},
		{"--switches 10.0.0.1/32", "8 to 30 bits"},
		{"--node-api-streams-etcd f", "give --node-api-streams, too"},
		{"--node-api-streams-etcd f --node-api-streams 64", ""},
		{"--pod-rate 0", ""},
		{"--pod-rate -1", "--pod-rate takes packets a second"},
		{"--kubeconfig /nowhere", "where the API server is"},
		{"--fabric ../deploy/fabric/fabric.yaml", ""},
		{"--fabric ../deploy/fabric/fabric.yaml --masquerade=false", ""},
		{"--fabric ../deploy/chain.yaml", "there is no such field"},
	} {
		var o options
		o.node, o.deviceID = "node1", 1
		cmd := &cobra.Command{}
		o.kube.flags(cmd.Flags())
		cmd.Flags().StringVar(&o.node, "node", "node1", "")
		cmd.Flags().BoolVar(&o.chained, "chained", false, "")
		cmd.Flags().IntVar(&o.mtu, "mtu", 0, "")
		cmd.Flags().BoolVar(&o.masks, "masquerade", true, "")
		cmd.Flags().StringArrayVar(&o.peers, "peer", nil, "")
		cmd.Flags().StringArrayVar(&o.services, "services", nil, "")
		if err := cmd.ParseFlags(append([]string{"--kubeconfig", kubeconfig}, strings.Fields(c.args)...)); err != nil {
			t.Fatal(err)
		}
		k, err := inCluster(&o)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
		if err == nil && (k.Namespace != "here" || k.Node != "node1" || (k.Lead != nil) != strings.Contains(c.args, "--etcd")) {
			t.Errorf("%q: %+v", c.args, k)
		}
	}
}

// TestServicesOverlap checks that without Kubernetes, the chains' prefix is compared with the
// prefixes in the file of nodes.
func TestServicesOverlap(t *testing.T) {
	node := func(name, address, pods string) podroutes.Node {
		return podroutes.Node{Name: name, Address: netip.MustParseAddr(address),
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix(pods)}}
	}
	c := &cluster{self: node("a", "192.168.0.1", "10.244.1.0/24"), others: []podroutes.Node{
		node("b", "10.0.254.9", "10.244.2.0/24")}}
	for services, want := range map[string]string{"10.0.253.0/24": "", "10.0.254.0/24": "the address of node b (10.0.254.9)",
		"10.244.0.0/16": "the range of the pods of node a (10.244.1.0/24)", "10.244.2.128/25": "node b (10.244.2.0/24)"} {
		if _, err := parseServices([]string{services}, c); (err == nil) != (want == "") || err != nil &&
			!strings.Contains(err.Error(), want) {
			t.Errorf("--services %s: %v, want %q", services, err, want)
		}
	}
}
