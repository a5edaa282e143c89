package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/authority"
	"github.com/netcraq/netcraq/nodeapi/store"
)

// leases requests all pages of listLeases. It returns the whole list, and the number of pages.
func (l *line) leases(d nodeapi.ListLeasesData) (out nodeapi.ListLeasesAnswer, pages int) {
	l.t.Helper()
	for {
		data, err := json.Marshal(d)
		if err != nil {
			l.t.Fatal(err)
		}
		l.send(fmt.Sprintf(`{"id":2,"func":"listLeases","timeoutMs":60000,"data":%s}`, data))
		var answer struct {
			Data  *nodeapi.ListLeasesAnswer
			Error *nodeapi.Error
		}
		text := l.receive()
		if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Data == nil {
			l.t.Fatalf("%v: %s", err, text)
		}
		pages++
		out.Leases = append(out.Leases, answer.Data.Leases...)
		out.Held = append(out.Held, answer.Data.Held...)
		out.Unread += answer.Data.Unread
		if d.Cursor = answer.Data.Cursor; d.Cursor == "" {
			return out, pages
		}
		l.cursors = append(l.cursors, d.Cursor)
	}
}

// holds returns what a lease holds, each as KIND NAME.
func holds(a nodeapi.ListLeasesAnswer, lease string) (held []string) {
	for _, h := range a.Held {
		if h.Lease == lease {
			held = append(held, h.Kind+" "+h.Name)
		}
	}
	slices.Sort(held)
	return held
}

// holding makes a lease that holds one thing of each kind.
func (l *line) holding(name string) (lease string, held []string) {
	l.t.Helper()
	lease = l.grant()
	for _, request := range []string{
		`"put","data":{"key":"%s","value":"x","lease":"%s"}`, `"lock","data":{"name":"%s","lease":"%s"}`,
		`"campaign","data":{"name":"%s","value":"v","lease":"%s"}`,
		`"acquire","data":{"name":"%s","permits":1,"lease":"%s"}`,
		`"registerService","data":{"service":"%s","instance":"i","address":"10.0.0.7:80","lease":"%s"}`,
	} {
		l.send(fmt.Sprintf(`{"id":1,"func":`+request+`}`, name, lease))
		l.expectPart(`"data"`)
	}
	return lease, []string{"election " + name, "key " + name, "lock " + name, "permit " + name + "/0", "service " + name + "/i"}
}

// TestListLeases checks that a list has each lease once, with everything that the lease holds,
// whatever the size of the pages. The list must not contain anything that has ended, or that
// belongs to other namespaces.
func TestListLeases(t *testing.T) {
	for name, st := range map[string]store.Store{"read by the store": store.NewMemory(1025),
		"read by the server": namesOnly{store.NewMemory(1025)}} {
		t.Run(name, func(t *testing.T) {
			_, path := start(t, Config{Store: st, Node: "n1"})
			l := dial(t, path)
			l.put("plain", "x")
			lease, want := l.holding("a")
			empty := l.grant()
			gone, _ := l.holding("gone")
			l.ask(`{"id":1,"func":"revoke","data":{"lease":"`+gone+`"}}`, `{"id":1,"data":{}}`)
			l.send(`{"id":1,"func":"lock","data":{"name":"elsewhere","namespace":"other"}}`)
			l.expectPart(`"held":true`)
			for _, limit := range []int{0, 1, 3, nodeapi.MaxList} {
				got, pages := l.leases(nodeapi.ListLeasesData{Limit: limit})
				if (limit == 0) != (pages == 1) && limit < 4 {
					t.Errorf("limit %d: %d pages", limit, pages)
				}
				var names []string
				for _, s := range got.Leases {
					names = append(names, s.Lease)
					if s.Node != "n1" || !strings.Contains(s.Holder, fmt.Sprintf("(pid %d)", os.Getpid())) {
						t.Errorf("the lease %s is of node %q, holder %q", s.Lease, s.Node, s.Holder)
					}
					if s.TTLMillis != 60000 || s.LeftMillis <= 0 || s.LeftMillis > s.TTLMillis {
						t.Errorf("the lease %s has %d ms of %d left", s.Lease, s.LeftMillis, s.TTLMillis)
					}
				}
				all := []string{lease, empty}
				slices.Sort(all)
				if !slices.Equal(names, all) {
					t.Errorf("limit %d: leases %q, want %q", limit, names, all)
				}
				if h := holds(got, lease); !slices.Equal(h, want) {
					t.Errorf("limit %d: %q holds %q, want %q", limit, lease, h, want)
				}
				if h := holds(got, empty); len(h) > 0 || got.Unread > 0 {
					t.Errorf("limit %d: an empty lease holds %q; %d unread", limit, h, got.Unread)
				}
			}
		})
	}
}

// failing is a store that cannot read one of its names.
type failing struct {
	store.Store
	name string
}

func (f failing) Get(ctx context.Context, key store.Key, eventual bool) (store.Item, error) {
	if key.Name == f.name {
		return store.Item{}, &nodeapi.Error{Code: nodeapi.CodeUnavailable, Message: "no"}
	}
	return f.Store.Get(ctx, key, eventual)
}

func TestListLeasesUnread(t *testing.T) {
	_, path := start(t, Config{Store: failing{namesOnly{store.NewMemory(1025)}, "bad"}})
	l := dial(t, path)
	lease := l.grant()
	l.put("bad", "x")
	got, _ := l.leases(nodeapi.ListLeasesData{})
	if got.Unread != 1 || len(got.Leases) != 1 || got.Leases[0].Lease != lease {
		t.Errorf("%+v; want the lease %s, and 1 unread", got, lease)
	}
}

// TestListLeasesCursor checks that a list of leases refuses the cursor of a list of keys, and the
// other way round.
func TestListLeasesCursor(t *testing.T) {
	_, path := start(t, Config{})
	l := dial(t, path)
	l.put("a", "x")
	l.put("b", "x")
	keys, _ := l.list(nodeapi.ListData{Limit: 1})
	l.send(`{"id":1,"func":"listLeases","data":{"cursor":"` + keys.Cursor + `"}}`)
	l.expectPart(`"code":"invalid_argument"`)
	l.grant()
	l.leases(nodeapi.ListLeasesData{Limit: 1})
	if len(l.cursors) == 0 {
		t.Fatal("no cursor")
	}
	for _, d := range []string{`"list","data":{"cursor":"%s"}`, `"listLeases","data":{"cursor":"%s","namespace":"other"}`,
		`"listLeases","data":{"cursor":"%s8"}`} {
		l.send(`{"id":1,"func":` + fmt.Sprintf(d, l.cursors[0]) + `}`)
		l.expectPart(`"code":"invalid_argument"`)
	}
	for request, code := range map[string]nodeapi.Code{`{"limit":-1}`: nodeapi.CodeInvalidArgument,
		`{"limit":257}`: nodeapi.CodeTooLarge, `{"cursor":"AQ"}`: nodeapi.CodeInvalidArgument,
		`{"namespace":"../x"}`: nodeapi.CodeInvalidArgument, `{"prefix":"a"}`: nodeapi.CodeInvalidArgument} {
		l.send(`{"id":1,"func":"listLeases","data":` + request + `}`)
		l.expectPart(`"code":"` + string(code) + `"`)
	}
}

// pods makes the connections of a test belong to pods. A new connection belongs to the pod that the
// test named last.
type pods struct {
	t    *testing.T
	proc string
}

func (p pods) are(uid string) {
	p.t.Helper()
	text := "0::/user.slice\n"
	if uid != "" {
		text = "0::/kubepods/burstable/pod" + uid + "/0123456789abcdef0123456789abcdef\n"
	}
	dir := filepath.Join(p.proc, strconv.Itoa(os.Getpid()))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

func (p pods) dial(uid, path string) *line {
	p.t.Helper()
	p.are(uid)
	l := dial(p.t, path)
	l.ask(`{"id":1,"func":"ping"}`, `{"id":1,"data":{}}`) // after the answer, the server has identified the caller
	return l
}

const (
	victimPod   = "0b1d7c3e-5a2f-4c8e-9d10-3f6a7b8c9d0e"
	attackerPod = "a1b2c3d4-e5f6-4789-8abc-def012345678"
)

// TestPodListsOwnLeases checks a pod that tries to see the leases of another pod, in a namespace
// that both may write. The pod must not see them. An operator on the node must see all leases.
func TestPodListsOwnLeases(t *testing.T) {
	p := pods{t, t.TempDir()}
	policy := everybody{"default"}
	_, path := start(t, Config{Authority: policy,
		Identify: authority.Identifier{Proc: p.proc, Cgroups: &authority.Cgroups{}}})
	victim := p.dial(victimPod, path)
	lease, held := victim.holding("secret")
	victim.send(`{"id":1,"func":"lock","data":{"name":"implicit"}}`)
	victim.expectPart(`"held":true`)
	own, _ := victim.leases(nodeapi.ListLeasesData{})
	if len(own.Leases) != 2 || !slices.Equal(holds(own, lease), held) {
		t.Errorf("a pod's own leases: %+v", own)
	}

	attacker := p.dial(attackerPod, path)
	mine, _ := attacker.holding("mine")
	// The attacker knows the name of the lease. It renews the lease, binds keys to it and asks for
	// it.
	for _, request := range []string{`"keepAlive","data":{"lease":"` + lease + `"}`,
		`"put","data":{"key":"bait","value":"x","lease":"` + lease + `"}`,
		`"lock","data":{"name":"bait","lease":"` + lease + `"}`} {
		attacker.send(`{"id":1,"func":` + request + `}`)
		attacker.expectPart(`"data"`)
	}
	for _, limit := range []int{0, 1, 2} {
		attacker.cursors = nil
		got, _ := attacker.leases(nodeapi.ListLeasesData{Limit: limit})
		if text := fmt.Sprintf("%+v", got); strings.Contains(text, lease) || strings.Contains(text, "secret") ||
			strings.Contains(text, "implicit") || len(got.Leases) != 1 || got.Leases[0].Lease != mine {
			t.Errorf("a pod sees of another's leases: %s", text)
		}
		if (limit == 0) != (len(attacker.cursors) == 0) {
			t.Errorf("limit %d: %d cursors", limit, len(attacker.cursors))
		}
		for _, c := range attacker.cursors { // cursors say where the next page begins, so they could reveal a name
			if b, err := base64.RawURLEncoding.DecodeString(c); err != nil || strings.Contains(string(b), lease) ||
				strings.Contains(string(b), "secret") || strings.Contains(string(b), "implicit") {
				t.Errorf("a cursor shows another's names: %q, %v", b, err)
			}
		}
	}

	operator := p.dial("", path)
	got, _ := operator.leases(nodeapi.ListLeasesData{})
	if len(got.Leases) != 3 || len(holds(got, lease)) != len(held)+2 {
		t.Errorf("an operator sees %+v", got)
	}
	for _, s := range got.Leases {
		of := victimPod
		if s.Lease == mine {
			of = attackerPod
		}
		if !strings.Contains(s.Holder, of) {
			t.Errorf("the lease %s is held by %q, want pod %s", s.Lease, s.Holder, of)
		}
	}
}

// TestListLeasesDenied checks that a caller without the right to read a namespace gets no leases of
// it.
func TestListLeasesDenied(t *testing.T) {
	me := fmt.Sprintf(`user: "%d"`, os.Getuid())
	policy := &changing{t: t}
	policy.set(`[{` + me + `, namespace: blue, access: {blue: write}}]`)
	_, path := start(t, Config{Authority: policy})
	l := dial(t, path)
	l.holding("a")
	if got, _ := l.leases(nodeapi.ListLeasesData{}); len(got.Leases) != 1 {
		t.Errorf("%+v", got)
	}
	l.send(`{"id":1,"func":"listLeases","data":{"namespace":"red"}}`)
	l.expectPart(`"code":"permission_denied"`)
	policy.set(`[{` + me + `, access: {red: read}}]`)
	l.send(`{"id":1,"func":"listLeases","data":{"namespace":"blue"}}`)
	l.expectPart(`"code":"permission_denied"`)
}
