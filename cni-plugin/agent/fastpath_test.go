package agent_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/cni-plugin/api/v1alpha1"
	"github.com/netcraq/netcraq/cni-plugin/kube/fastpath"
)

// TestFastPath checks that pods' ports are closed by default. A pod that requests the fast path,
// and is allowed to use it, can read and write only the keys of its namespace. Attacks from pods
// with and without CAP_NET_RAW must change nothing.
func TestFastPath(t *testing.T) {
	for _, engine := range []string{"ebpf", "interp"} {
		t.Run(engine, func(t *testing.T) {
			k := newCluster(t, 2, "--engine", engine)
			k.join(0)
			k.join(1)
			ctx := t.Context()
			k.allow("team", "fast")
			k.allow("other", "fast")
			mine, far := k.pod(0, "team", "fast", true), k.pod(1, "team", "fast", true)
			stranger := k.pod(0, "other", "fast", true)
			quiet, refused := k.pod(0, "team", "fast", false), k.pod(0, "team", "default", true)
			check(t, k.c.Create(ctx, &v1alpha1.NetcraqChain{ObjectMeta: metav1.ObjectMeta{Name: "main"},
				Spec: v1alpha1.NetcraqChainSpec{Length: 2, Profile: 128, Slots: 64, LeaseMillis: 3000}}))
			service := netip.MustParseAddr(k.wait("main", "formed", serving(2)).Status.ServiceAddress)
			control := k.admin(0)
			add := func(name, value string) wire.Key {
				t.Helper()
				added, err := control.AddKey(ctx, "main", admin.KeySpec{Name: name, Value: []byte(value)})
				check(t, err)
				return wire.Key(added.KeyID)
			}
			key, theirs, common := add("ns/team/leader", "alice"), add("ns/other/leader", "oscar"), add("/registry/secrets/team/s", "secret")
			fromMine, fromFar, fromStranger, fromNode := newClientAt(t, mine.space, service),
				newClientAt(t, far.space, service), newClientAt(t, stranger.space, service),
				newClientAt(t, k.nodes[0].space, service)
			expect(t, "a pod of the namespace", fromMine, key, "alice")
			put(t, control, fromFar, key, "bob")
			expect(t, "a pod of the namespace", fromMine, key, "bob")
			expect(t, "a pod of another", fromStranger, theirs, "oscar")
			expect(t, "the node", fromNode, key, "bob")
			expect(t, "the node", fromNode, common, "secret")
			for what, c := range map[string]struct {
				c   *client.Client
				key wire.Key
			}{"a pod, another namespace's key": {fromMine, theirs}, "a pod, a key of no namespace": {fromMine, common}, "a pod of another namespace": {fromStranger, key}} {
				if r, err := c.c.Get(ctx, c.key); !errors.Is(err, client.ErrDenied) {
					t.Errorf("%s: reads %q, %v", what, r.Value, err)
				}
				if _, err := c.c.Put(ctx, c.key, []byte("mallory")); !errors.Is(err, client.ErrDenied) {
					t.Errorf("%s: writes, %v", what, err)
				}
			}
			k.sessions(control, service, mine, stranger, quiet, key)
			put(t, control, fromMine, key, "bob")

			attack := func(p *pod, as string, names ...string) string {
				t.Helper()
				return k.testpod(p, as, append([]string{"attack", "--service", service.String(), "--switches", "10.0.255.1,10.0.255.2", "--nodes", "192.168.0.1,192.168.0.2",
					"--victim", netip.AddrPortFrom(mine.ip, 7777).String(), "--key", fmt.Sprint(uint32(key)),
					"--keys", "1", "--seconds", "3"}, names...)...)
			}
			unchanged := func(after string) {
				t.Helper()
				expect(t, "a pod of the namespace, after "+after, fromMine, key, "bob")
				expect(t, "a pod of the namespace at another node, after "+after, fromFar, key, "bob")
				expect(t, "a pod of another, after "+after, fromStranger, theirs, "oscar")
				expect(t, "the node, after "+after, fromNode, common, "secret")
			}
			all := []string{"reads", "writes", "sessions", "stamped", "acks", "replies", "spoofed", "tags", "options", "fragments", "vxlan", "mutated"}
			for _, c := range []struct {
				who string
				p   *pod
				as  string
			}{{"a pod that does not ask", quiet, "root"}, {"a pod that may not", refused, "root"}, {"a pod that does not ask, without CAP_NET_RAW", quiet, "nobody"}, {"a pod of another namespace", stranger, "root"}} {
				for _, name := range all {
					before, err := control.Counters(ctx, "node1")
					check(t, err)
					said := attack(c.p, c.as, name)
					unchanged(name + " of " + c.who)
					after, err := control.Counters(ctx, "node1")
					check(t, err)
					var dropped []string
					for event, n := range after.Events {
						if n -= before.Events[event]; n > 0 && (strings.HasPrefix(event, "drop_") ||
							event == "denied" || event == "bad_session") {
							dropped = append(dropped, fmt.Sprintf("%s %d", event, n))
						}
					}
					t.Logf("%s: %s; node1's switch: %v", c.who, strings.TrimSpace(said), dropped)
					sent := number(t, said, `sent (\d+)`)
					least := uint64(sent)
					if engine == "interp" {
						least = min(least, 100) // the interpreter drops copies when its socket is full
					}
					if c.p != stranger && sent > 0 && plain[name] && after.Events["drop_closed_port"]-before.Events["drop_closed_port"] < least {
						t.Errorf("%s: of %d packets the switch has dropped %v", name, sent, dropped)
					}
					if answers := number(t, said, `answers (\d+)`); c.p != stranger && answers > 0 {
						t.Errorf("%s is answered: %s", c.who, said)
					}
					if strings.Contains(said, " OK ") {
						t.Errorf("%s: something was done for it: %s", c.who, said)
					}
				}
			}
			k.sessions(control, service, mine, stranger, quiet, key) // no attack may have used up the sessions
			if said := attack(mine, "nobody", "reads", "writes"); strings.Count(said, " OK ") != 2 {
				t.Errorf("not even a pod with a right to the key is answered: the test means nothing: %s", said)
			}
			put(t, control, fromMine, key, "bob")

			probe := func() string {
				return strings.TrimSpace(k.testpod(mine, "root", "probe", "--service", service.String(),
					"--key", fmt.Sprint(uint32(key)), "--seconds", "2"))
			}
			t.Logf("before a flood: %s", probe())
			flooded := make(chan string)
			go func() { flooded <- attack(quiet, "root", "flood") }()
			time.Sleep(500 * time.Millisecond)
			t.Logf("beside a flood: %s", probe())
			t.Logf("%s", strings.ReplaceAll(strings.TrimSpace(<-flooded), "\n", "; "))
			unchanged("a flood")

			// Only root's processes on a node can send queries to the switch.
			ask := []string{"probe", "--service", service.String(), "--key", fmt.Sprint(uint32(common))}
			if said := k.testpod(&pod{space: k.nodes[0].space}, "root", ask...); !strings.Contains(said, `OK "secret"`) {
				t.Errorf("root on the node: %s", said)
			}
			if said := k.testpod(&pod{space: k.nodes[0].space}, "nobody", ask...); strings.Contains(said, "secret") {
				t.Errorf("nobody on the node: %s", said)
			}

			t.Log("the right is taken back, and given again; then the pod does not ask any more")
			check(t, k.c.Delete(ctx, &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "fast-path", Namespace: "team"}}))
			began := time.Now()
			k.becomes(fromMine, key, false)
			t.Logf("a right that was taken back is gone after %.1f s", time.Since(began).Seconds())
			k.allow("team", "fast")
			k.becomes(fromMine, key, true)
			check(t, k.c.Patch(ctx, mine.object, kubeclient.RawPatch(types.MergePatchType,
				[]byte(`{"metadata": {"annotations": {"`+fastpath.Annotation+`": null}}}`))))
			k.becomes(fromMine, key, false)
			expect(t, "another pod of the namespace", fromFar, key, "bob")
		})
	}
}

// plain are the attacks whose packets all reach the switch unchanged if they have the pod's own
// source address.
var plain = map[string]bool{"reads": true, "writes": true, "sessions": true, "stamped": true, "acks": true}

// number returns the number in a text that a pattern captures.
func number(t *testing.T, text, pattern string) int {
	t.Helper()
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("%q has no %s", text, pattern)
	}
	n, err := strconv.Atoi(m[1])
	check(t, err)
	return n
}

// testpod runs the test program in a pod, as root or as nobody without capabilities.
func (k *cluster) testpod(p *pod, as string, args ...string) string {
	k.t.Helper()
	command := []string{"netns", "exec", p.space}
	if as != "root" {
		command = append(command, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs")
	}
	out, err := exec.Command("ip", append(append(command, filepath.Join(needs(k.t), "testpod")), args...)...).CombinedOutput()
	if err != nil && args[0] == "attack" {
		k.t.Errorf("testpod %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// becomes waits until a client may read a key. If the argument may is false, it waits until the
// client may not.
func (k *cluster) becomes(c *client.Client, key wire.Key, may bool) {
	k.t.Helper()
	until(k.t, fmt.Sprintf("a pod may read: %v", may), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		_, err := c.Get(ctx, key)
		if may || err != nil && !errors.Is(err, client.ErrDenied) {
			return map[bool]error{true: err}[may]
		}
		return fmt.Errorf("it gets %v", err)
	})
}

// sessions leases sessions to a pod with the fast path and to the node, by their addresses. Each of
// the two can use only its own session. A pod whose port is closed gets no session.
func (k *cluster) sessions(control *admin.Client, service netip.Addr, mine, stranger, quiet *pod, key wire.Key) {
	k.t.Helper()
	ctx := context.Background()
	lease := func(address string) admin.Session {
		k.t.Helper()
		s, err := control.NewSessions(ctx, admin.SessionsRequest{Count: 1, Owner: "test", Address: address})
		check(k.t, err)
		return s.Sessions[0]
	}
	write := func(space string, s admin.Session) wire.Status {
		k.t.Helper()
		p := ask(k.t, space, service, wire.Packet{Op: wire.Write, Key: key, Session: s.ID,
			Request: s.NextRequest, Value: []byte("carol")})
		return p.Status
	}
	for _, c := range []struct {
		who, address, space, other string
	}{{"the pod", mine.ip.String(), mine.space, stranger.space}, {"the node", "192.168.0.1", k.nodes[0].space, mine.space}} {
		s := lease(c.address)
		if status := write(c.other, s); status != wire.BadSession {
			k.t.Errorf("%s's session is used by another: %v", c.who, status)
		}
		if status := write(c.space, s); status != wire.OK {
			k.t.Errorf("%s's session: %v", c.who, status)
		}
	}
	if s, err := control.NewSessions(ctx, admin.SessionsRequest{Count: 1,
		Address: quiet.ip.String()}); err == nil || !strings.Contains(err.Error(), "closed") {
		k.t.Errorf("a pod whose port is closed is leased %v, %v", s, err)
	}
}

// ask sends a packet from a namespace, again and again, until an answer comes.
func ask(t *testing.T, space string, service netip.Addr, p wire.Packet) wire.Packet {
	t.Helper()
	c, err := inside(t, space, func() (net.Conn, error) {
		return net.Dial("udp4", netip.AddrPortFrom(service, wire.Port).String())
	})
	check(t, err)
	defer c.Close()
	b, err := p.Marshal(wire.Profile128)
	check(t, err)
	answer := make([]byte, 100)
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		_, err := c.Write(b)
		check(t, err)
		check(t, c.SetReadDeadline(time.Now().Add(200*time.Millisecond)))
		n, err := c.Read(answer)
		if err != nil {
			continue
		}
		var got wire.Packet
		check(t, got.Unmarshal(answer[:n], wire.Profile128))
		if got.Request == p.Request && got.Status != wire.NotServing && got.Status != wire.Retry {
			return got
		}
	}
	t.Fatalf("%v is not answered", p.Op)
	return wire.Packet{}
}
