package agent_test

import (
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestCNITool uses the CNI project's own tool as the container runtime, with a list of the three
// usual plugins. It runs STATUS, ADD and CHECK, a CHECK of an interface that was tampered with, DEL
// twice, and GC.
func TestCNITool(t *testing.T) {
	n := newNode(t, "10.244.1.0/24")
	n.start()
	conf := filepath.Join(n.dir, "net.d")
	check(t, os.MkdirAll(conf, 0o700))
	list := n.list(n.plugin(), map[string]any{"type": "portmap",
		"capabilities": map[string]bool{"portMappings": true}}, map[string]any{"type": "bandwidth", "ingressRate": 1e9, "ingressBurst": 1e9})
	check(t, os.WriteFile(filepath.Join(conf, "10-pods.conflist"), list.Bytes, 0o600))
	tool := func(args ...string) (string, error) {
		t.Helper()
		c := exec.Command("ip", append([]string{"netns", "exec", n.space, filepath.Join(n.bin, "cnitool")}, args...)...)
		c.Env = append(os.Environ(), "CNI_PATH="+n.bin, "NETCONFPATH="+conf)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	do := func(args ...string) string {
		t.Helper()
		out, err := tool(args...)
		if err != nil {
			t.Fatalf("cnitool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return out
	}
	p, q := n.newPod(t), n.newPod(t)
	do("status", "pods", p.rt.NetNS)
	for _, pod := range []*pod{p, q} {
		var result struct {
			IPs []struct{ Address string }
		}
		out := do("add", "pods", pod.rt.NetNS)
		check(t, json.Unmarshal([]byte(out), &result))
		if len(result.IPs) != 1 {
			t.Fatalf("the result of add: %s", out)
		}
		pod.ip = netip.MustParsePrefix(result.IPs[0].Address).Addr()
		do("check", "pods", pod.rt.NetNS)
	}
	check(t, talk(t, p.space, q.space, netip.AddrPortFrom(q.ip, 80)))

	_, err := inside(t, p.space, func() (struct{}, error) {
		l, err := netlink.LinkByName("eth0")
		if err == nil {
			err = netlink.LinkSetMTU(l, 9000)
		}
		return struct{}{}, err
	})
	check(t, err)
	if out, err := tool("check", "pods", p.rt.NetNS); err == nil || !strings.Contains(out, "MTU of 9000 bytes") {
		t.Errorf("check of an interface whose MTU was changed: %v, %s", err, out)
	}
	if out, err := tool("add", "pods", q.rt.NetNS); err == nil {
		t.Errorf("add of what is there: %s", out)
	}
	do("del", "pods", p.rt.NetNS)
	do("del", "pods", p.rt.NetNS)
	// cnitool gives GC no list of valid attachments. libcni itself sends a DEL for each attachment
	// in its cache.
	if out, err := tool("gc", "pods", q.rt.NetNS); err == nil || !strings.Contains(out, "valid-attachments") {
		t.Errorf("gc without a list: %v, %s", err, out)
	}
	n.expectNothingLeft(t)
}
