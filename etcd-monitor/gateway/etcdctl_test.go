package gateway

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

// etcdctls returns the available versions of etcdctl: the one in go.mod, and Debian's version 3.4
// if it is installed.
func etcdctls(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{"go.mod": etcdtest.Tool(t, "go.etcd.io/etcd/etcdctl/v3")}
	if p, err := exec.LookPath("etcdctl"); err == nil {
		out["PATH"] = p
	} else {
		t.Log("without the etcdctl on PATH: there is none (Debian's etcd-client)")
	}
	return out
}

// TestEtcdctl uses etcd's own command-line client through the gateway.
func TestEtcdctl(t *testing.T) {
	for name, path := range etcdctls(t) {
		for way, served := range ways {
			t.Run(name+" "+way, func(t *testing.T) {
				t.Parallel()
				c := etcdtest.New(t, 1, etcdtest.Options{})
				g := beginWay(t, served, c.Endpoints()...)
				e := etcdtest.Etcdctl{Path: path, Flags: []string{"--endpoints", g.Endpoint}}
				etcdctlKeys(t, e)
				etcdctlLeases(t, e)
				etcdctlWaits(t, e)
				if out := e.Must(t, "", "snapshot", "save", filepath.Join(t.TempDir(), "snapshot.db")); !strings.Contains(out, "napshot saved") {
					t.Errorf("snapshot save printed %q", out)
				}
				etcdctlMaintenance(t, e)
				etcdctlAuth(t, e)
			})
		}
	}
}

// wants calls etcdctl and compares its output with want.
func wants(t *testing.T, e etcdtest.Etcdctl, want, input string, args ...string) {
	t.Helper()
	if got := e.Must(t, input, args...); got != want {
		t.Errorf("etcdctl %s printed %q, want %q", strings.Join(args, " "), got, want)
	}
}

// refuses calls etcdctl. The call must fail with a message that contains want.
func refuses(t *testing.T, e etcdtest.Etcdctl, want string, args ...string) {
	t.Helper()
	if r := e.Run(t, "", args...); r.OK || !strings.Contains(r.Err, want) {
		t.Errorf("etcdctl %s: %q, %q (success: %v), want a refusal with %q", strings.Join(args, " "), r.Out, r.Err, r.OK, want)
	}
}

// revision returns the mod revision of a key.
func revision(t *testing.T, e etcdtest.Etcdctl, key string) int64 {
	t.Helper()
	var r struct {
		Kvs []struct {
			Mod int64 `json:"mod_revision"`
		} `json:"kvs"`
	}
	if err := json.Unmarshal([]byte(e.Must(t, "", "get", key, "-w", "json")), &r); err != nil || len(r.Kvs) != 1 {
		t.Fatalf("get %s: %v, %v", key, r, err)
	}
	return r.Kvs[0].Mod
}

func etcdctlKeys(t *testing.T, e etcdtest.Etcdctl) {
	wants(t, e, "OK\n", "", "put", "a", "1")
	first := fmt.Sprint(revision(t, e, "a"))
	wants(t, e, "OK\n", "", "put", "b", "2")
	wants(t, e, "a\n1\n", "", "get", "a")
	wants(t, e, "a\n1\nb\n2\n", "", "get", "a", "--from-key")
	wants(t, e, "OK\na\n1\n", "", "put", "a", "3", "--prev-kv")
	wants(t, e, "SUCCESS\n\nOK\n\nb\n2\n", "mod(\"a\") > \"0\"\n\nput a 4\nget b\n\nget a\n\n", "txn")
	wants(t, e, "FAILURE\n\na\n4\n", "value(\"a\") = \"nine\"\n\nput a 4\n\nget a\n\n", "txn")
	wants(t, e, "1\n", "", "del", "b")
	wants(t, e, "a\n1\n", "", "get", "a", "--rev", first)
	refuses(t, e, "required revision is a future revision", "get", "a", "--rev", "1000000")
	last := fmt.Sprint(revision(t, e, "a"))
	if out := e.Must(t, "", "compaction", last); !strings.Contains(out, "compacted revision "+last) {
		t.Errorf("compaction printed %q", out)
	}
	refuses(t, e, "required revision has been compacted", "get", "a", "--rev", first)
	refuses(t, e, "requested lease not found", "put", "a", "x", "--lease", "12345")
}

func etcdctlLeases(t *testing.T, e etcdtest.Etcdctl) {
	granted := e.Must(t, "", "lease", "grant", "60")
	id := regexp.MustCompile(`lease ([0-9a-f]+) granted with TTL\(60s\)`).FindStringSubmatch(granted)
	if id == nil {
		t.Fatalf("lease grant printed %q", granted)
	}
	wants(t, e, "OK\n", "", "put", "leased", "x", "--lease", id[1])
	if out := e.Must(t, "", "lease", "keep-alive", "--once", id[1]); !strings.Contains(out, "keepalived with TTL(60)") {
		t.Errorf("lease keep-alive printed %q", out)
	}
	if out := e.Must(t, "", "lease", "timetolive", "--keys", id[1]); !strings.Contains(out, "attached keys([leased])") {
		t.Errorf("lease timetolive printed %q", out)
	}
	if out := e.Must(t, "", "lease", "list"); !strings.Contains(out, id[1]) {
		t.Errorf("lease list printed %q", out)
	}
	wants(t, e, "lease "+id[1]+" revoked\n", "", "lease", "revoke", id[1])
	wants(t, e, "", "", "get", "leased")
	refuses(t, e, "requested lease not found", "lease", "revoke", id[1])
}

// etcdctlWaits runs those commands of etcdctl that do not end by themselves.
func etcdctlWaits(t *testing.T, e etcdtest.Etcdctl) {
	lines := func(args ...string) (next func() string, end func()) {
		ctx, cancel := context.WithCancel(t.Context())
		cmd := e.Command(ctx, args...)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 100)
		go func() {
			defer close(got)
			for s := bufio.NewScanner(out); s.Scan(); {
				got <- s.Text()
			}
		}()
		return func() string {
				t.Helper()
				select {
				case line := <-got:
					return line
				case <-time.After(10 * time.Second):
					t.Fatalf("etcdctl %s: silent for 10 s", strings.Join(args, " "))
					return ""
				}
			}, func() {
				cancel()
				cmd.Wait()
			}
	}
	e.Must(t, "", "put", "w1", "x")
	next, end := lines("watch", "w", "--prefix", "--rev", fmt.Sprint(revision(t, e, "w1")))
	for _, want := range []string{"PUT", "w1", "x"} {
		if got := next(); got != want {
			t.Errorf("watch printed %q, want %q", got, want)
		}
	}
	e.Must(t, "", "del", "w1")
	if got := next(); got != "DELETE" {
		t.Errorf("watch printed %q, want DELETE", got)
	}
	end()

	next, end = lines("lock", "mutex")
	if key := next(); !strings.HasPrefix(key, "mutex/") {
		t.Errorf("lock printed %q", key)
	}
	end()
	wants(t, e, "", "", "lock", "mutex2", "true")

	next, end = lines("elect", "election", "me")
	if key, value := next(), next(); !strings.HasPrefix(key, "election/") || value != "me" {
		t.Errorf("elect printed %q, %q", key, value)
	}
	observe, endObserve := lines("elect", "--listen", "election")
	if key, value := observe(), observe(); !strings.HasPrefix(key, "election/") || value != "me" {
		t.Errorf("elect --listen printed %q, %q", key, value)
	}
	endObserve()
	end()
}

func etcdctlMaintenance(t *testing.T, e etcdtest.Etcdctl) {
	if out := e.Must(t, "", "member", "list"); !strings.Contains(out, "started, m0,") {
		t.Errorf("member list printed %q", out)
	}
	if out := e.Must(t, "", "endpoint", "status"); !strings.Contains(out, e.Flags[1]) {
		t.Errorf("endpoint status printed %q", out)
	}
	if r := e.Run(t, "", "endpoint", "health"); !r.OK || !strings.Contains(r.Out+r.Err, "is healthy") {
		t.Errorf("endpoint health printed %q, %q", r.Out, r.Err)
	}
	if out := e.Must(t, "", "endpoint", "hashkv"); !strings.Contains(out, e.Flags[1]) {
		t.Errorf("endpoint hashkv printed %q", out)
	}
	if r := e.Run(t, "", "defrag"); !r.OK || !strings.Contains(r.Out+r.Err, "Finished defragmenting") {
		t.Errorf("defrag printed %q, %q", r.Out, r.Err)
	}
	wants(t, e, "", "", "alarm", "list")
}

func etcdctlAuth(t *testing.T, e etcdtest.Etcdctl) {
	e.Must(t, "", "user", "add", "root:secret")
	e.Must(t, "", "user", "add", "alice:pw")
	e.Must(t, "", "role", "add", "reader")
	e.Must(t, "", "role", "grant-permission", "reader", "read", "pub/", "--prefix")
	e.Must(t, "", "user", "grant-role", "alice", "reader")
	e.Must(t, "", "user", "grant-role", "root", "root")
	wants(t, e, "OK\n", "", "put", "pub/x", "1")
	wants(t, e, "Authentication Enabled\n", "", "auth", "enable")
	refuses(t, e, "user name is empty", "get", "pub/x")
	alice, root := e, e
	alice.Flags = append([]string{"--user", "alice:pw"}, e.Flags...)
	root.Flags = append([]string{"--user", "root:secret"}, e.Flags...)
	wants(t, alice, "pub/x\n1\n", "", "get", "pub/x")
	refuses(t, alice, "permission denied", "get", "a")
	refuses(t, alice, "permission denied", "put", "pub/x", "2")
	wrong := e
	wrong.Flags = append([]string{"--user", "alice:wrong"}, e.Flags...)
	refuses(t, wrong, "authentication failed", "get", "pub/x")
	wants(t, root, "OK\n", "", "put", "a", "5")
	wants(t, root, "Authentication Disabled\n", "", "auth", "disable")
	wants(t, e, "a\n5\n", "", "get", "a")
}
