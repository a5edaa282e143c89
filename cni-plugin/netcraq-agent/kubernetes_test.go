package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestInCluster: what the command line of an agent in a cluster may say, and what is said to who
// gets it wrong.
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
