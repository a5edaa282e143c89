package kube_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/testutil/kubetest"
)

// TestChart installs the Helm chart into a real API server, which must accept all objects. It then
// upgrades and uninstalls the chart. The chain's resource must stay, because an agent must first
// remove the chain's keys.
func TestChart(t *testing.T) {
	helm, err := filepath.Abs("../../bin/helm")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(helm); err != nil {
		if helm, err = exec.LookPath("helm"); err != nil {
			t.Skip("skipped: there is no helm: make test-chart builds one into bin")
		}
	}
	s := kubetest.Start(t, kubetest.Options{})
	config := s.Kubeconfig(t, s.Config)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(helm, append([]string{"--kubeconfig", config, "--namespace", namespace}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+t.TempDir())
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	get := func(args ...string) string {
		t.Helper()
		return s.Kubectl(t, kubetest.Options{}, append([]string{"get", "--ignore-not-found"}, args...)...)
	}
	const chart = "../deploy/chart"
	notes := run("install", "netcraq", chart, "--create-namespace", "--set", "gateway=", "--set", "prometheus=",
		"--set", "chain.create=true", "--set", "chain.spec.placement=null")
	if !strings.Contains(notes, "kubectl wait --for condition=Ready netcraqchain/main") {
		t.Errorf("it says\n%s", notes)
	}
	arguments := func() string {
		return get("daemonset", "netcraq-agent-control-plane", "-n", namespace, "-o", "jsonpath={.spec.template.spec.containers[0].args}")
	}
	if got := arguments(); !strings.Contains(got, `"--etcd=localhost:2379"`) || strings.Contains(got, "--prometheus") {
		t.Errorf("the agents on control-plane nodes are given %s", got)
	}
	if got := get("netcraqchain", "main", "-o", "jsonpath={.spec.length} {.spec.placement}"); got != `3 {"policy":"Hot"}` {
		t.Errorf("the chain is %q", got)
	}
	s.Kubectl(t, kubetest.Options{}, "auth", "can-i", "list", "nodes",
		"--as=system:serviceaccount:"+namespace+":netcraq-agent") // kubectl auth can-i fails if the answer is no

	run("upgrade", "netcraq", chart, "--reuse-values", "--set", "prometheus=http://prometheus.monitoring:9090")
	if got := arguments(); !strings.Contains(got, `"--prometheus=http://prometheus.monitoring:9090"`) {
		t.Errorf("after the upgrade the agents on control-plane nodes are given %s", got)
	}
	run("uninstall", "netcraq")
	if left := get("daemonset,serviceaccount,clusterrole,validatingadmissionpolicy", "-A", "-l", "app.kubernetes.io/part-of=netcraq", "-o", "name"); left != "" {
		t.Errorf("the release left\n%s", left)
	}
	if left := get("netcraqchain", "-o", "name"); left != "netcraqchain.netcraq.io/main\n" {
		t.Errorf("of chains there is %q", left)
	}
}
