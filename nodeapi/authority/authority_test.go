package authority

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// pods is a fake implementation of Pods for tests.
type pods struct {
	mu      sync.Mutex
	all     map[string]PodInfo
	changed chan struct{}
}

func newPods(ps ...PodInfo) *pods {
	out := &pods{all: map[string]PodInfo{}, changed: make(chan struct{})}
	for _, p := range ps {
		out.all[p.UID] = p
	}
	return out
}

func (p *pods) Pod(uid string) (PodInfo, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i, ok := p.all[uid]
	return i, ok
}

func (p *pods) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *pods) set(uid string, i *PodInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, uid)
	if i != nil {
		p.all[uid] = *i
	}
	close(p.changed)
	p.changed = make(chan struct{})
}

type reviewer func(context.Context, Review) (bool, error)

func (r reviewer) Review(ctx context.Context, q Review) (bool, error) { return r(ctx, q) }

type clock struct{ at atomic.Int64 }

func (c *clock) Now() time.Time       { return time.Unix(1000, c.at.Load()) }
func (c *clock) pass(d time.Duration) { c.at.Add(int64(d)) }

// refused checks that an error has a code, and that its text contains the given text.
func refused(t *testing.T, err error, code nodeapi.Code, says string) {
	t.Helper()
	if !errors.Is(err, &nodeapi.Error{Code: code}) || !strings.Contains(err.Error(), says) {
		t.Errorf("%v, want %s that says %q", err, code, says)
	}
}

var (
	podA = PodInfo{UID: uidA, Namespace: "blue", Name: "a", ServiceAccountName: "worker"}
	podB = PodInfo{UID: uidB, Namespace: "green", Name: "b", ServiceAccountName: "default"}
	a    = Caller{Kind: Pod, PID: 10, UID: 0, PodUID: uidA}
	b    = Caller{Kind: Pod, PID: 11, UID: 0, PodUID: uidB}
)

func TestKubernetes(t *testing.T) {
	ctx := context.Background()
	var asked []Review
	now := &clock{}
	ps := newPods(podA, podB)
	may := map[Review]bool{{"blue", "worker", "get", "green"}: true}
	var down error
	k := NewKubernetes(KubernetesOptions{Pods: ps, Clock: now,
		Reviewer: reviewer(func(_ context.Context, q Review) (bool, error) {
			asked = append(asked, q)
			return may[q], down
		})})
	for v := range numVerbs {
		if err := k.Authorize(ctx, a, v, "blue"); err != nil {
			t.Errorf("its own namespace: %s: %v", v, err)
		}
	}
	if len(asked) != 0 {
		t.Errorf("a pod's own namespace needs no answer; asked were %v", asked)
	}
	if ns, err := k.Namespace(ctx, b); ns != "green" || err != nil {
		t.Errorf("%q, %v", ns, err)
	}
	if k.Subject(a) != "blue" {
		t.Errorf("subject %q", k.Subject(a))
	}
	for range 3 {
		if err := k.Authorize(ctx, a, Read, "green"); err != nil {
			t.Error(err)
		}
		refused(t, k.Authorize(ctx, a, Write, "green"), nodeapi.CodePermissionDenied, "rule roles")
	}
	refused(t, k.Authorize(ctx, b, Read, "blue"), nodeapi.CodePermissionDenied, "pod green/b may not read keys of namespace blue")
	if len(asked) != 3 {
		t.Errorf("answers are not kept: %v", asked)
	}
	// A newly granted right takes effect after DeniedFor. A revoked right remains valid until
	// AllowedFor has passed.
	may = map[Review]bool{{"blue", "worker", "update", "green"}: true}
	now.pass(11 * time.Second)
	if err := k.Authorize(ctx, a, Write, "green"); err != nil {
		t.Error(err)
	}
	if err := k.Authorize(ctx, a, Read, "green"); err != nil {
		t.Error(err)
	}
	now.pass(20 * time.Second)
	refused(t, k.Authorize(ctx, a, Read, "green"), nodeapi.CodePermissionDenied, "rule roles")
	// If the API server does not answer, requests that need an unknown right are refused. This
	// refusal is not cached.
	down = errors.New("no route")
	refused(t, k.Authorize(ctx, a, Watch, "green"), nodeapi.CodeUnavailable, "no route")
	if err := k.Authorize(ctx, a, Write, "blue"); err != nil {
		t.Error(err)
	}
	down = nil
	refused(t, k.Authorize(ctx, a, Watch, "green"), nodeapi.CodePermissionDenied, "rule roles")
}

// TestOtherNamesOfANamespace checks that a caller gets no rights by using another spelling for the
// name of another namespace.
func TestOtherNamesOfANamespace(t *testing.T) {
	ctx := context.Background()
	k := NewKubernetes(KubernetesOptions{Pods: newPods(podA, podB),
		Reviewer: reviewer(func(_ context.Context, q Review) (bool, error) {
			t.Errorf("the API server is asked %+v", q)
			return true, nil
		})})
	policy, err := ParsePolicy([]byte(`callers: [{all: true, access: {"*": write}}]`), System{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "../green", "blue/../green", "..", ".", "GREEN", "Green", "grеen", "ｇreen",
		"green\u200b", "green\x00", "green ",
		" green", "green/", "/green", "-green", "green-", "gre_en", "green.blue", "*",
		"ns:green", "blue\ngreen", strings.Repeat("g", 64), strings.Repeat("é", 1000)} {
		for who, z := range map[string]Authorizer{"Kubernetes": k, "Policy": policy, "Files": Files{}} {
			c := a
			if who != "Kubernetes" {
				c = Caller{Kind: Process}
			}
			err := z.Authorize(ctx, c, Read, name)
			refused(t, err, nodeapi.CodeInvalidArgument, "is not a namespace")
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the refusal has %d bytes", len(err.Error()))
			}
		}
	}
	for _, name := range []string{"a", "blue", "kube-system", "0", strings.Repeat("g", 63)} {
		if err := CheckNamespace(name); err != nil {
			t.Error(err)
		}
	}
}

// TestPodThatGoes checks a connection that outlives its pod. Any process may hold such a
// connection.
func TestPodThatGoes(t *testing.T) {
	ctx := context.Background()
	ps := newPods()
	k := NewKubernetes(KubernetesOptions{Pods: ps, PodWait: 10 * time.Second,
		Reviewer: reviewer(func(context.Context, Review) (bool, error) { return true, nil })})
	refused(t, k.Authorize(ctx, a, Read, "blue"), nodeapi.CodePermissionDenied, "rule pod-gone")
	named := make(chan string)
	go func() {
		ns, _ := k.Namespace(ctx, a)
		named <- ns
	}()
	ps.set(uidB, &podB)
	ps.set(uidA, &podA)
	if ns := <-named; ns != "blue" {
		t.Errorf("a pod that is heard of later is in %q", ns)
	}
	if err := k.Authorize(ctx, a, Read, "green"); err != nil {
		t.Error(err)
	}
	ps.set(uidA, nil)
	refused(t, k.Authorize(ctx, a, Read, "blue"), nodeapi.CodePermissionDenied, "rule pod-gone")
	refused(t, k.Authorize(ctx, a, Read, "green"), nodeapi.CodePermissionDenied, "rule pod-gone")
	short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancel()
	_, err := k.Namespace(short, a)
	refused(t, err, nodeapi.CodePermissionDenied, "rule pod-gone")
}

// TestNoPod checks callers on a cluster's node that are not in a pod.
func TestNoPod(t *testing.T) {
	ctx := context.Background()
	k := NewKubernetes(KubernetesOptions{Pods: newPods(podA)})
	for rule, c := range map[string]Caller{"unknown-caller": {Why: "x"}, "host-process": {Kind: Process},
		"rule host": {Kind: TCP, Address: "127.0.0.1:1"}} {
		refused(t, k.Authorize(ctx, c, Read, "blue"), nodeapi.CodePermissionDenied, rule)
		_, err := k.Namespace(ctx, c)
		refused(t, err, nodeapi.CodePermissionDenied, rule)
	}
	k = NewKubernetes(KubernetesOptions{Pods: newPods(podA), Hosts: Files{Own: "own"}})
	if err := k.Authorize(ctx, Caller{Kind: Process}, Read, "blue"); err != nil {
		t.Error(err)
	}
	refused(t, k.Authorize(ctx, Caller{Kind: TCP}, Read, "blue"), nodeapi.CodePermissionDenied, "rule tcp")
	refused(t, k.Authorize(ctx, Caller{}, Read, "blue"), nodeapi.CodePermissionDenied, "unknown-caller")
	refused(t, k.Authorize(ctx, a, numVerbs, "blue"), nodeapi.CodePermissionDenied, "there is no verb 4")
}

// TestFloodOfNamespaces checks a pod that sends requests for many namespaces. The number of
// requests to the API server and the size of the cache must be bounded. Pods of other namespaces
// must not be refused.
func TestFloodOfNamespaces(t *testing.T) {
	ctx := context.Background()
	asked := 0
	now := &clock{}
	k := NewKubernetes(KubernetesOptions{Pods: newPods(podA, podB), Clock: now, Answers: 100,
		ReviewsASec: 10, ReviewsBurst: 50,
		Reviewer: reviewer(func(context.Context, Review) (bool, error) {
			asked++
			return false, nil
		})})
	for i := range 10_000 {
		err := k.Authorize(ctx, a, Read, fmt.Sprintf("n%d", i))
		if i < 50 {
			refused(t, err, nodeapi.CodePermissionDenied, "rule roles")
		} else {
			refused(t, err, nodeapi.CodeQuotaExceeded, "10 times a second")
		}
	}
	if asked != 50 {
		t.Errorf("the API server was asked %d times", asked)
	}
	refused(t, k.Authorize(ctx, b, Read, "blue"), nodeapi.CodePermissionDenied, "rule roles")
	for i := range 1000 {
		now.pass(time.Second)
		_ = k.Authorize(ctx, a, Read, fmt.Sprintf("m%d", i))
	}
	if n := len(k.answers.Keys()); n > 100 {
		t.Errorf("%d answers are kept", n)
	}
}

// TestManyAskTheSame checks that concurrent callers with the same question share one review. The
// review must not end when the first caller gives up.
func TestManyAskTheSame(t *testing.T) {
	var asked atomic.Int32
	answer := make(chan struct{})
	k := NewKubernetes(KubernetesOptions{Pods: newPods(podA), ReviewTime: 10 * time.Second,
		Reviewer: reviewer(func(ctx context.Context, _ Review) (bool, error) {
			asked.Add(1)
			select {
			case <-answer:
				return true, nil
			case <-ctx.Done():
				return false, ctx.Err()
			}
		})})
	first, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 1)
	go func() { errs <- k.Authorize(first, a, Read, "green") }()
	poll.Until(t, 5*time.Second, "the API server is asked", func() bool { return asked.Load() == 1 })
	cancel()
	refused(t, <-errs, nodeapi.CodeUnavailable, "canceled")
	for range 20 {
		go func() { errs <- k.Authorize(context.Background(), a, Read, "green") }()
	}
	close(answer)
	for range 20 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

type users struct{}

func (users) User(name string) (uint32, error) {
	if name == "alice" {
		return 1000, nil
	}
	return 0, errors.New("no such user")
}
func (users) Group(name string) (uint32, error) {
	if name == "staff" {
		return 50, nil
	}
	return 0, errors.New("no such group")
}

const policyText = `
callers:
  - user: alice
    namespace: blue
    access: {blue: write, green: read}
  - user: "1001"
    access: {red: write}
  - group: staff
    access: {"*": read}
  - tcp: true
    namespace: far
    access: {far: read}
quotas:
  default: {connections: 7}
  blue: {keys: 3, requestsPerSecond: 1.5}
`

func TestPolicy(t *testing.T) {
	ctx := context.Background()
	p, err := ParsePolicy([]byte(policyText), users{})
	if err != nil {
		t.Fatal(err)
	}
	alice := Caller{Kind: Process, UID: 1000, GID: 1000}
	staff := Caller{Kind: Process, UID: 7, GID: 7, Groups: []uint32{3, 50}}
	number, root := Caller{Kind: Process, UID: 1001, GID: 50}, Caller{Kind: Process}
	far := Caller{Kind: TCP, Address: "127.0.0.1:9"}
	for _, c := range []struct {
		who       Caller
		verb      Verb
		namespace string
		allowed   bool
	}{
		{alice, Write, "blue", true}, {alice, Create, "blue", true}, {alice, Read, "blue", true},
		{alice, Watch, "green", true}, {alice, Read, "green", true},
		{alice, Write, "green", false}, {alice, Create, "green", false}, {alice, Read, "red", false},
		{staff, Read, "red", true}, {staff, Watch, "blue", true}, {staff, Write, "blue", false},
		{number, Write, "red", true}, {number, Read, "blue", true}, {number, Write, "blue", false},
		{far, Read, "far", true}, {far, Write, "far", false}, {far, Read, "blue", false},
		{root, Read, "blue", false}, {Caller{}, Read, "blue", false},
		{Caller{Kind: Pod, UID: 1000}, Read, "blue", false},
	} {
		err := p.Authorize(ctx, c.who, c.verb, c.namespace)
		if (err == nil) != c.allowed {
			t.Errorf("%s: %s %s: %v", c.who, c.verb, c.namespace, err)
		}
		if err != nil {
			refused(t, err, nodeapi.CodePermissionDenied, "rule ")
		}
	}
	if ns, err := p.Namespace(ctx, alice); ns != "blue" || err != nil {
		t.Errorf("%q, %v", ns, err)
	}
	if ns, err := p.Namespace(ctx, number); ns != "" || err != nil {
		t.Errorf("%q, %v", ns, err)
	}
	_, err = p.Namespace(ctx, root)
	refused(t, err, nodeapi.CodePermissionDenied, "rule policy")
	want := DefaultQuota
	want.Connections = 7
	if q := p.Quota("x"); q != want {
		t.Errorf("%+v, want %+v", q, want)
	}
	want.Keys, want.RequestsPerSecond = 3, 1.5
	if q := p.Quota("blue"); q != want {
		t.Errorf("%+v, want %+v", q, want)
	}
	refused(t, Files{}.Authorize(ctx, far, Read, "blue"), nodeapi.CodePermissionDenied, "rule tcp")
	if err := (Files{}).Authorize(ctx, root, Write, "blue"); err != nil {
		t.Error(err)
	}
}

func TestPolicyThatIsNone(t *testing.T) {
	for text, says := range map[string]string{
		"callers: [{user: alice, acces: {}}]":                   "acces",
		"caller: []":                                            "caller",
		"quotas: {blue: {kees: 1}}":                             "kees",
		"quotas: {default: {keys: -1}}":                         "below 0",
		"quotas: {Blue: {keys: 1}}":                             "not a namespace",
		"quotas: {blue: {burst: 0}}":                            "burst",
		"quotas: {blue: {requestsPerSecond: .nan}}":             "below 0",
		"quotas: {blue: {listsPerSecond: -1}}":                  "below 0",
		"namespaces: {blue: {}}":                                "durable: true, or false",
		"namespaces: {Blue: {durable: true}}":                   "not a namespace",
		"namespaces: {blue: {durable: maybe}}":                  "cannot unmarshal",
		"namespaces: {blue: {durabel: true}}":                   "durabel",
		"callers: [{access: {blue: write}}]":                    "give one of",
		"callers: [{user: alice, group: staff}]":                "give one of",
		"callers: [{user: alice, tcp: true}]":                   "give one of",
		"callers: [{user: bob}]":                                "no such user",
		"callers: [{group: bob}]":                               "no such group",
		"callers: [{user: alice, access: {blue: all}}]":         "read or write",
		"callers: [{user: alice, access: {Blue: read}}]":        "not a namespace",
		"callers: [{user: alice, namespace: '../x'}]":           "not a namespace",
		"callers: [{user: alice}]\n---\ncallers: [{all: true}]": "one document",
		"callers: {user: alice}":                                "cannot unmarshal",
		"callers: [{user: alice, user: root}]":                  "already",
	} {
		if _, err := ParsePolicy([]byte(text), users{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
	}
	if p, err := ParsePolicy(nil, users{}); err != nil || p.Quota("x") != DefaultQuota {
		t.Errorf("none at all: %v", err)
	}
}

func TestDurable(t *testing.T) {
	p, err := ParsePolicy([]byte(`namespaces: {"*": {durable: true}, blue: {durable: false}}`), users{})
	if err != nil {
		t.Fatal(err)
	}
	for ns, want := range map[string]bool{"blue": false, "green": true} {
		if durable, said := p.Durable(ns); durable != want || !said {
			t.Errorf("%s: %v, %v", ns, durable, said)
		}
	}
	none, err := ParsePolicy([]byte(`namespaces: {blue: {durable: false}}`), users{})
	if err != nil {
		t.Fatal(err)
	}
	if durable, said := none.Durable("green"); durable || said || none.HasDurable() || !p.HasDurable() {
		t.Errorf("of green nothing is said: %v, %v", durable, said)
	}
}

// TestPolicyFile changes the file of a policy. One of the changes makes it invalid.
func TestPolicyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policy.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenPolicy(path, users{}, nil); err == nil {
		t.Error("there is no policy")
	}
	write(policyText)
	f, err := OpenPolicy(path, users{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	var changes, complaints atomic.Int32
	go func() {
		defer close(ended)
		f.Follow(ctx, 5*time.Millisecond, slog.New(slog.NewTextHandler(writer(func(b []byte) {
			if strings.Contains(string(b), "as it was before") {
				complaints.Add(1)
			}
		}), nil)), func() { changes.Add(1) })
	}()
	defer func() { cancel(); <-ended }()
	alice := Caller{Kind: Process, UID: 1000}
	if err := f.Authorize(ctx, alice, Read, "red"); err == nil {
		t.Error("alice may read red")
	}
	write("callers: [{user: alice, access: {red: write}}")
	poll.Until(t, 10*time.Second, "it is told of", func() bool { return complaints.Load() == 1 })
	if err := f.Authorize(ctx, alice, Read, "blue"); err != nil {
		t.Error("what was before goes on:", err)
	}
	write("callers: [{user: alice, access: {red: write}}]")
	poll.Until(t, 10*time.Second, "the other policy is there", func() bool {
		return f.Authorize(ctx, alice, Write, "red") == nil && changes.Load() == 1
	})
	refused(t, f.Authorize(ctx, alice, Read, "blue"), nodeapi.CodePermissionDenied, "rule policy")
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPolicy(path, users{}, nil); err == nil || !strings.Contains(err.Error(), "may be written") {
		t.Errorf("a policy that everybody may write: %v", err)
	}
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// TestQuotas checks that requests beyond the quotas are refused.
func TestQuotas(t *testing.T) {
	now := &clock{}
	quota := Quota{Connections: 2, Watches: 10, RequestsPerSecond: 100, Burst: 5, Keys: 4}
	q := NewQuotas(func(subject string) Quota { return quota }, now)
	connect := func(subject string) *Account {
		t.Helper()
		a, err := q.Connect(subject)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	one, two := connect("blue"), connect("blue")
	_, err := q.Connect("blue")
	refused(t, err, nodeapi.CodeQuotaExceeded, "blue has 2 connections to this node, of at most 2")
	other := connect("green") // another subject is not refused
	two.Close()
	two = connect("blue")
	if err := one.Watch(8); err != nil {
		t.Error(err)
	}
	refused(t, two.Watch(3), nodeapi.CodeQuotaExceeded, "8 watches at this node, of at most 10, and asks for 3 more")
	refused(t, two.Watch(int(^uint(0)>>1)), nodeapi.CodeQuotaExceeded, "watches")
	refused(t, two.Watch(-1), nodeapi.CodeQuotaExceeded, "watches")
	one.Unwatch(8)
	if err := two.Watch(10); err != nil {
		t.Error(err)
	}
	two.Unwatch(10)
	taken := 0
	for range 10_000 { // these 10,000 steps take 1 s of simulated time
		now.pass(100 * time.Microsecond)
		if one.Request(1) == nil {
			taken++
		}
	}
	if taken < 100 || taken > 106 {
		t.Errorf("%d requests of a flood are taken in a second, want 100 and the burst", taken)
	}
	refused(t, two.Request(1), nodeapi.CodeQuotaExceeded, "100 requests a second")
	if err := other.Request(1); err != nil {
		t.Error(err)
	}
	// A request with the work of many requests counts as many requests, but at most as the whole
	// burst.
	now.pass(time.Second)
	if err := two.Request(1_000_000); err != nil {
		t.Error(err)
	}
	refused(t, two.Request(1), nodeapi.CodeQuotaExceeded, "100 requests a second")
	refused(t, two.List(), nodeapi.CodeQuotaExceeded, "0 pages of keys a second")
	quota.ListsPerSecond = 2
	q.Changed()
	now.pass(5 * time.Second)
	lists := 0
	for range 1000 { // these 1,000 steps take 10 s of simulated time
		now.pass(10 * time.Millisecond)
		if two.List() == nil {
			lists++
		}
	}
	if lists < 29 || lists > 31 {
		t.Errorf("%d lists of a flood are made in ten seconds, want 2 a second and 10 at once", lists)
	}
	refused(t, two.List(), nodeapi.CodeQuotaExceeded, "2 pages of keys a second at this node, and 10 at once")
	for two.Request(1) == nil { // use up the quota that was refilled meanwhile
	}
	// A new connection does not get a new burst.
	one.Close()
	two.Close()
	one = connect("blue")
	refused(t, one.Request(1), nodeapi.CodeQuotaExceeded, "requests")
	quota.RequestsPerSecond, quota.Connections = 1000, 0
	q.Changed()
	now.pass(10 * time.Millisecond)
	if err := one.Request(1); err != nil {
		t.Error(err)
	}
	_, err = q.Connect("green")
	refused(t, err, nodeapi.CodeQuotaExceeded, "of at most 0")
	if q.Keys("blue") != 4 {
		t.Error(q.Keys("blue"))
	}
	// Accounts that are not used are deleted.
	one.Close()
	other.Close()
	now.pass(2 * time.Minute)
	_, _ = q.Connect("green")
	if len(q.used) != 1 {
		t.Errorf("%d accounts are kept", len(q.used))
	}
}
