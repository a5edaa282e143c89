package userspace

import (
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/netcraq/netcraq/switch/offload"
	"github.com/netcraq/netcraq/switch/target"
)

const inNamespace = "NETCRAQ_USERSPACE_TEST_NETNS"

// TestFinishedFrames checks that, while the switch uses a port, the sender at the other end of the
// veth splits its segments to the MTU. This must not happen if all TCP belongs to the host. The
// test runs in a network namespace of its own.
func TestFinishedFrames(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		if os.Geteuid() != 0 {
			t.Skip("needs root, to create interfaces in a network namespace of its own")
		}
		cmd := exec.Command(os.Args[0], "-test.run", "^TestFinishedFrames$")
		cmd.Env = append(os.Environ(), inNamespace+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	for _, name := range []string{"pa", "pb"} {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name},
			PeerName: name + "p"}); err != nil {
			t.Fatal(err)
		}
	}
	cuts := func(when, peer string, want bool) {
		t.Helper()
		on, err := offload.IsOn(peer, offload.TCPSegments)
		if err != nil || on == want {
			t.Errorf("%s, %s leaves its segments to the device: %v (%v)", when, peer, on, err)
		}
	}
	d, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	cuts("before", "pap", false)
	for i, name := range []string{"pa", "pb"} {
		if err := d.AddPort(target.Port{Number: uint32(i), Iface: name}); err != nil {
			t.Fatal(err)
		}
	}
	cuts("as a port", "pap", true)
	if err := d.RemovePort(0); err != nil {
		t.Fatal(err)
	}
	cuts("removed", "pap", false)
	cuts("still a port", "pbp", true)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	cuts("closed", "pbp", false)

	if d, err = New(Options{OnlyUDP: 20035, Log: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.AddPort(target.Port{Number: 1, Iface: "pa"}); err != nil {
		t.Fatal(err)
	}
	cuts("shared with the host", "pap", false)
}
