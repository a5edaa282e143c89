package operate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/refchain"
)

const chainID = 1

// controller is a fake controller. It serves the admin API for one reference chain.
type controller struct {
	chain *refchain.Chain
	url   string

	mu       sync.Mutex
	info     admin.Chain
	keys     map[string]admin.Key
	next     uint16
	returned int
	hosts    []string // hosts that got sessions
	values   map[string][]byte
}

func newController(t *testing.T, cfg refchain.Config) *controller {
	t.Helper()
	cfg.ChainID = chainID
	if cfg.Profile == 0 {
		cfg.Profile = wire.Profile1024
	}
	chain, err := refchain.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(chain.Close)
	a := chain.Addresses()
	c := &controller{chain: chain, keys: map[string]admin.Key{}, values: map[string][]byte{}, info: admin.Chain{
		Name: "main", ID: chainID, Epoch: 1, ServiceAddress: a[0].String(), LeaseMillis: 200, Slots: 100,
		Ready: true, ValueBytes: cfg.Profile.ValueBytes(),
		Members: []admin.Member{{Switch: "s1", Role: "HEAD_TAIL", Address: a[1].String(), Ready: true, LeaseLive: true}},
	}}
	mux := http.NewServeMux()
	handle := func(pattern string, f func(r *http.Request) (any, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			defer c.mu.Unlock()
			v, err := f(r)
			if e, ok := err.(*admin.Error); ok {
				w.WriteHeader(e.Status)
				_, _ = w.Write(admin.MarshalError(e))
				return
			}
			_ = json.NewEncoder(w).Encode(v)
		})
	}
	none := func(what string) error { return admin.Errorf(admin.CodeNotFound, "no such %s", what) }
	handle("GET /v1/chains", func(*http.Request) (any, error) { return []admin.Chain{c.info}, nil })
	handle("GET /v1/chains/{chain}", func(r *http.Request) (any, error) {
		if r.PathValue("chain") == "short" {
			short := c.info
			short.Name, short.Length = "short", 3
			short.Missing = []admin.MissingMember{{Switch: "s2", Why: "it is not connected"}, {Switch: "s3", Why: "it is there"}}
			return short, nil
		}
		if r.PathValue("chain") == "apart" {
			apart := c.info
			apart.Name, apart.VersionWarning = "apart", "s2 has version 0.1.0 and s1 has version 0.3.0"
			apart.Members = []admin.Member{{Switch: "s1", Version: "0.3.0"}, {Switch: "s2", Version: "0.1.0"}, {Switch: "s3"}}
			return apart, nil
		}
		if r.PathValue("chain") != "main" {
			return nil, none("chain")
		}
		return c.info, nil
	})
	handle("PUT /v1/chains/{chain}", func(r *http.Request) (any, error) {
		var change admin.ChainChange
		if err := json.NewDecoder(r.Body).Decode(&change); err != nil {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
		}
		if change.Frozen != nil {
			c.info.Frozen = *change.Frozen
		}
		if change.LeaseMillis != nil {
			c.info.LeaseMillis = *change.LeaseMillis
		}
		if change.Members != nil {
			c.info.Members = nil
			for _, m := range *change.Members {
				c.info.Members = append(c.info.Members, admin.Member{Switch: m, Role: "REPLICA",
					Address: a[1].String(), Ready: true, LeaseLive: true})
			}
		}
		return c.info, nil
	})
	handle("POST /v1/chains/{chain}/recover", func(r *http.Request) (any, error) {
		var what admin.Recovery
		if err := json.NewDecoder(r.Body).Decode(&what); err != nil {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
		}
		for _, m := range c.info.Members {
			if m.Switch == what.Switch {
				return nil, admin.Errorf(admin.CodeInvalidArgument, "invalid: %s is a member already", what.Switch)
			}
		}
		c.info.Members = append(c.info.Members, admin.Member{Switch: what.Switch, Role: "TAIL",
			Address: a[1].String(), Ready: true, LeaseLive: true})
		return c.info, nil
	})
	handle("GET /v1/chains/{chain}/keys", func(*http.Request) (any, error) {
		out := []admin.Key{}
		for _, k := range c.keys {
			out = append(out, k)
		}
		return out, nil
	})
	handle("POST /v1/chains/{chain}/keys", func(r *http.Request) (any, error) {
		var spec admin.KeySpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "%v", err)
		}
		if _, ok := c.keys[spec.Name]; ok {
			return nil, admin.Errorf(admin.CodeAlreadyExists, "%s is placed already", spec.Name)
		}
		id := uint32(wire.MakeKey(chainID, uint32(len(c.keys)+1)))
		if spec.KeyID != nil {
			id = *spec.KeyID
		}
		k := admin.Key{Name: spec.Name, KeyID: id, Chain: "main", Slot: len(c.keys)}
		c.keys[spec.Name], c.values[spec.Name] = k, spec.Value
		chain.Place(wire.Key(id))
		if spec.Value != nil {
			chain.Put(wire.Key(id), wire.MakeVersion(1, 1), spec.Value, true)
		}
		return k, nil
	})
	handle("DELETE /v1/chains/{chain}/keys/{key}", func(r *http.Request) (any, error) {
		if _, ok := c.keys[r.PathValue("key")]; !ok {
			return nil, none("key")
		}
		delete(c.keys, r.PathValue("key"))
		return nil, nil
	})
	handle("GET /v1/keys", func(r *http.Request) (any, error) {
		out := []admin.Key{}
		for _, k := range c.keys {
			if r.FormValue("state") != "" {
				k.State = []admin.KeyState{{Switch: "s1", Status: "OK", Version: 5, Newest: 5, Length: 2}}
			}
			if strings.HasPrefix(k.Name, r.FormValue("prefix")) {
				out = append(out, k)
			}
		}
		return out, nil
	})
	handle("GET /v1/keys/{key}", func(r *http.Request) (any, error) {
		if k, ok := c.keys[r.PathValue("key")]; ok {
			return k, nil
		}
		return nil, none("key")
	})
	handle("GET /v1/switches", func(*http.Request) (any, error) {
		return []admin.Switch{{Name: "s1", Address: a[1].String(), P4Runtime: "127.0.0.1:9559", DeviceID: 1,
			Connected: true, Ready: true, Chains: []string{"main"}}}, nil
	})
	var asked atomic.Uint64
	handle("GET /v1/switches/{switch}/counters", func(r *http.Request) (any, error) {
		if r.PathValue("switch") != "s1" {
			return nil, none("switch")
		}
		if r.URL.Query().Get("slots") == "0" { // each request adds 1,000 reads and 10 writes
			n := asked.Add(1)
			return admin.Counters{Switch: "s1",
				Chains: []admin.ChainCounters{{ID: 1, Reads: 1000 * n, Writes: 10 * n}}}, nil
		}
		return admin.Counters{
			Switch: "s1", Events: map[string]uint64{"read_clean": 12345, "read_dirty": 0}, Unsent: 3,
			Slots: []admin.SlotCounters{{Slot: 0, KeyID: 0x01000001, Name: "/a", Reads: 12345},
				{Slot: 1, Writes: 2}, {Slot: 2, KeyID: 0x01000009, Name: "/quiet"}},
		}, nil
	})
	handle("GET /v1/placement", func(*http.Request) (any, error) {
		return nil, admin.Errorf(admin.CodeFailedPrecondition, "this controller places no keys")
	})
	handle("POST /v1/sessions", func(r *http.Request) (any, error) {
		var req admin.SessionsRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Owner == "" {
			return nil, admin.Errorf(admin.CodeInvalidArgument, "%v, owner %q", err, req.Owner)
		}
		c.hosts = append(c.hosts, req.Address)
		out := admin.Sessions{Lease: "L", TTLSeconds: 30}
		for range req.Count {
			c.next++
			out.Sessions = append(out.Sessions, admin.Session{ID: c.next, NextRequest: 1})
		}
		return out, nil
	})
	handle("PUT /v1/sessions/{lease}", func(r *http.Request) (any, error) {
		if r.PathValue("lease") != "L" {
			return nil, none("lease")
		}
		return admin.Sessions{Lease: "L", TTLSeconds: 30}, nil
	})
	handle("DELETE /v1/sessions/{lease}", func(*http.Request) (any, error) {
		c.returned++
		return nil, nil
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		if since := r.FormValue("since"); since != "0" {
			for id, e := range []admin.Event{
				{Type: "chain.failover", Chain: "main", Switch: "s2", Message: "it is out of reach"},
				{Type: "chain.failover", Chain: "other", Switch: "s2", Message: "it is out of reach there"},
				{Type: "switch.avoided", Switch: "s2", Message: "routes go around it"},
			} {
				e.ID, e.Time = uint64(id+2), time.Now()
				b, _ := json.Marshal(e)
				fmt.Fprintf(w, "id: %d\ndata: %s\n\n", e.ID, b)
			}
			return
		}
		b, _ := json.Marshal(admin.Event{ID: 1, Time: time.Now(), Type: "chain.ready", Chain: "main", Message: "all members serve"})
		fmt.Fprintf(w, "id: 1\ndata: %s\n\n", b)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

// ctl runs netcraqctl.
func ctl(t *testing.T, env map[string]string, stdin string, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	code = Netcraqctl.Run(t.Context(), append([]string{"netcraqctl"}, args...), Streams{strings.NewReader(stdin), &o, &e},
		func(k string) string { return env[k] })
	return o.String(), e.String(), code
}

// TestVerbs runs the commands in order, as a user would.
func TestVerbs(t *testing.T) {
	c := newController(t, refchain.Config{})
	env := map[string]string{adminVariable: c.url}
	file := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(file, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args  string // the test replaces {file} by the name of a file that contains "from a file"
		stdin string
		code  int
		out   string // regular expression for standard output
		err   string
	}{
		{args: "chain show", out: `(?s)chain main \(1\): epoch 1, .*read lease 200 ms, values to 128 bytes, keys 0 of 100\n.*s1 +HEAD_TAIL .*yes +live`},
		{args: "chain show short", out: `(?s)chain short .*, SHORT: 1 of 3 members\n.*s1 +HEAD_TAIL.*s2 is missing: it is not connected\n.*s3 is missing: it is there`},
		{args: "chain show apart", out: `(?s)VERSION\n  s1 .* 0\.3\.0\n  s2 .* 0\.1\.0\n  s3 .* unknown\n  WARNING: s2 has version 0\.1\.0 and`},
		{args: "-o json chain show apart", out: `(?s)"version": "0\.3\.0".*"version": "0\.1\.0".*"versionWarning": "s2 has`},
		{args: "chain add-key /a", out: `/a is 0x01000001 in chain main, slot 0`},
		{args: "chain add-key /a", code: 1, err: `placed already`},
		{args: "chain add-key --key-id 0x01000063 /b hex:00ff", out: `/b is 0x01000063`},
		{args: "chain add-key --key-id zz /c", code: 2, err: `"zz" is not a KEY_ID`},
		{args: "get /a", code: 3, err: `get 0x01000001: key not found`},
		{args: "get /nowhere", code: 3, err: `"/nowhere" is not placed in the network`},
		{args: "put /a on", out: `(?s)key +0x01000001 \(/a\)\nput +version 1.1\nanswer +from 127.0.0.1:\d+ in .*, 1 packet\n`},
		{args: "get /a", out: `(?s)key +0x01000001 \(/a\)\nvalue +"on"\nversion +1.1\nanswer +from`},
		{args: "get --eventual 16777217", out: `value +"on"`},
		{args: "get --raw 0x01000001", out: `^on$`},
		{args: "put /a @{file}", out: `version 1.2`},
		{args: "get --raw /a", out: `^from a file$`},
		{args: "put /a @-", stdin: "piped", out: `version 1.3`},
		{args: "get --raw /a", out: `^piped$`},
		{args: "put /a hex:00ff10", out: `version 1.4`},
		{args: "get /a", out: `value +hex:00ff10`},
		{args: "put /a text:@home", out: `version 1.5`},
		{args: "-o json get /a", out: `(?s)"key": "0x01000001",\s+"name": "/a",\s+"version": "1.5",\s+"versionNumber": "281474976710661",\s+"found": true,\s+"valueBase64": "QGhvbWU=",\s+"valueText": "@home"`},
		{args: "cas /a 1.5 swapped", out: `swapped +version 1.6`},
		{args: "cas /a 1.5 again", code: 4, err: `another version: version 1.6, value "swapped"`},
		{args: "-o json cas /a 1.5 again", code: 4, out: `(?s)"error": \{\s+"kind": "cas_failed".*"version": "1.6".*"valueText": "swapped"`},
		{args: "cas /a 1.x again", code: 2, err: `"1.x" is not a version`},
		{args: "del --if-version 1.5 /a", code: 4, err: `compare and delete`},
		{args: "del --if-version one /a", code: 2, err: `--if-version`},
		{args: "del --if-version 1.6 /a", out: `deleted +version 1.7`},
		{args: "-o json get /a", code: 3, out: `(?s)"kind": "not_found".*"version": "1.7"`},
		{args: "cas /a 1.7 back", out: `version 1.8`},
		{args: "del /a", out: `deleted +version 1.9`},
		{args: "put /a @/no/such/file", code: 1, err: `reading the value`},
		{args: "put /a hex:0", code: 2, err: `hex:0`},
		{args: "put /a " + strings.Repeat("x", 129), code: 1, err: `value too large: 129 bytes, the switches' program holds 128`},
		{args: "get 0x07000001", code: 3, err: `no chain 7, which the KEY_ID 0x07000001 belongs to.*it has main \(1\)`},
		{args: "put 0x01000077 x", code: 3, err: `put 0x01000077: key not found`},
		{args: "chain keys", out: `(?s)KEY_ID +CHAIN +SLOT +NAME\n.*0x01000001 +main +0 +/a`},
		{args: "chain keys --prefix /b --state", out: `0x01000063 +main +1 +s1 +OK +0.5 +0.5 +2 +/b`},
		{args: "chain remove-key /b", out: `/b is out of chain main`},
		{args: "chain remove-key /b", code: 3, err: `no such key`},
		{args: "chain show other", code: 3, err: `no such chain`},
		{args: "chain set main --frozen --lease 0s", out: `no read lease.*FROZEN`},
		{args: "chain set main --frozen=false --lease 100ms", out: `read lease 100 ms`},
		{args: "chain set main", code: 2, err: `nothing to change`},
		{args: "switch list", out: `s1 +127.0.0.2:\d+ +127.0.0.1:9559 +1 +yes +yes +main`},
		{args: "switch counters", out: `^SWITCH +PACKETS +EVENT\ns1 +12,345 +read_clean\ns1 +3 +unsent\n\n--keys lists what was counted for keys \(2 lines\)\n$`},
		{args: "switch counters --keys", out: `(?s)^SWITCH +PACKETS +EVENT\n.*\n\nSWITCH +READS.*s1 +12,345 +0 +0 +0x01000001 +/a\ns1 +0 +0 +2 +- +\(slot 1, no key\)\n$`},
		{args: "switch counters 127.0.0.1", code: 3, err: `no such switch.* Mininet.* write sh instead`},
		{args: "switch counters s9", code: 3, err: `switch s9: no such switch`},
		{args: "session new --count 2", out: `(?s)lease L, to be kept within 30s.*--session \d+:1`},
		{args: "session keep L", out: `lease L`},
		{args: "session keep M", code: 3, err: `no such lease`},
		{args: "session close L"},
		{args: "events", out: `chain.ready +main +all members serve`},
		{args: "", out: `Available Commands`},
		{args: "chain", out: `Available Commands`},
		{args: "frobnicate", code: 2, err: `unknown command "frobnicate"`},
		{args: "chain frobnicate", code: 2, err: `unknown command "frobnicate"`},
		{args: "get", code: 2, err: `accepts 1 arg`},
		{args: "get --frob /a", code: 2, err: `unknown flag`},
		{args: "-o yaml get /a", code: 2, err: `want text or json`},
		{args: "--value-bits 64 get /a", code: 2, err: `"64" is not a profile`},
		{args: "--timeout -1s get /a", code: 2, err: `above 0`},
		{args: "-s nohost.invalid:x get 0x01000001", code: 2, err: `"x" is not a port`},
		{args: "-s [::1]:5 get 0x01000001", code: 2, err: `IPv4 only`},
		{args: "--session 0:1 put /a x", code: 2, err: `want ID:NEXT-REQUEST`},
		{args: "--session 7 put /a x", code: 2, err: `want ID:NEXT-REQUEST`},
		{args: "--session 4000:5 put /a x", out: `version 1.10`},
		{args: "-o json chain frobnicate", code: 2, out: `unknown command`},
		{args: "-o json get", code: 2, out: `"kind": "usage"`},
	} {
		t.Run(tc.args, func(t *testing.T) {
			args := strings.Fields(strings.ReplaceAll(tc.args, "{file}", file))
			out, errs, code := ctl(t, env, tc.stdin, args...)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			if !regexp.MustCompile(tc.out).MatchString(out) || tc.out == "" && out != "" && tc.code != 2 {
				t.Errorf("prints\n%s\nwant\n%s", out, tc.out)
			}
			if !regexp.MustCompile(tc.err).MatchString(errs) || tc.err == "" && errs != "" {
				t.Errorf("complains\n%s\nwant\n%s", errs, tc.err)
			}
		})
	}
	if v := c.chain.Violations(); v != nil {
		t.Error(v)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.returned == 0 || string(c.values["/b"]) != "\x00\xff" {
		t.Errorf("leases given back: %d; value of /b: %x", c.returned, c.values["/b"])
	}
}

// TestMembers checks that an operator can fail members, bring them back, and watch events. The
// command refuses impossible requests with a reason.
func TestMembers(t *testing.T) {
	c := newController(t, refchain.Config{})
	env := map[string]string{adminVariable: c.url}
	for i, tc := range []struct {
		args string
		code int
		want []string // required parts of the output
		not  string
	}{
		{args: "chain fail s1", code: exitError, want: []string{"s1 is the only member of chain main", "bring another in first"}},
		{args: "chain fail s7", code: exitNotFound, want: []string{"s7 is not a member of chain main, whose members are s1"}},
		{args: "chain fail", code: exitUsage, want: []string{"usage: netcraqctl chain fail SWITCH"}},
		{args: "chain fail s1 --chain nowhere", code: exitNotFound, want: []string{"no such chain"}},
		{args: "chain recover s1", code: exitError, want: []string{"s1 is a member already"}},
		{args: "chain recover", code: exitUsage, want: []string{"usage: netcraqctl chain recover SWITCH"}},
		{args: "chain recover s2", want: []string{"s2", "TAIL"}},
		{args: "chain fail s1", want: []string{"s2"}, not: "s1"},
		{args: "chain recover s1 -o json", want: []string{`"switch": "s1"`}},
		{args: "chain watch", code: exitError, want: []string{"chain.failover", "main s2", "other s2", "switch.avoided", "ended the event stream"}, not: "all members serve"},
		{args: "chain watch main", code: exitError, want: []string{"main s2", "switch.avoided"}, not: "other s2"},
		{args: "chain watch main --json", code: exitError, want: []string{`"type":"chain.failover","switch":"s2","chain":"main","message":"it is out of reach"}` + "\n"}, not: "other"},
		{args: "chain watch nowhere", code: exitNotFound, want: []string{"no such chain"}},
	} {
		out, errs, code := ctl(t, env, "", strings.Fields(tc.args)...)
		said := out + errs
		if code != tc.code || tc.not != "" && strings.Contains(said, tc.not) {
			t.Errorf("%d: %s: code %d, want %d, and nothing of %q:\n%s", i, tc.args, code, tc.code, tc.not, said)
		}
		for _, w := range tc.want {
			if !strings.Contains(said, w) {
				t.Errorf("%d: %s: no %q in:\n%s", i, tc.args, w, said)
			}
		}
	}
}

func TestWithoutController(t *testing.T) {
	c := newController(t, refchain.Config{Profile: wire.Profile128})
	c.chain.Place(0x01000001)
	server := c.chain.Addresses()[0].String()
	nobody := httptest.NewServer(nil) // no server listens at its address
	nobody.Close()
	none := map[string]string{}
	// The command line gives --value-bits but not --admin. The command must not contact a
	// controller that may listen at this machine's default address.
	out, errs, code := ctl(t, none, "", "-s", server, "--value-bits", "128", "--session", "5:1", "put", "0x01000001", "x")
	if code != 0 || errs != "" || !strings.Contains(out, "version 1.1") {
		t.Errorf("put: %q, %q, %d", out, errs, code)
	}
	out, _, code = ctl(t, none, "", "-s", "nowhere.invalid,"+server, "--value-bits", "128", "get", "0x01000001")
	if code != 2 {
		t.Errorf("get with a name that cannot be resolved: %q, %d", out, code)
	}
	if out, _, code = ctl(t, none, "", "-s", server, "--value-bits", "128", "get", "--raw", "0x01000001"); code != 0 || out != "x" {
		t.Errorf("get: %q, %d", out, code)
	}
	if _, errs, code = ctl(t, none, "", "-s", server, "--value-bits", "1024", "--timeout", "150ms", "get", "0x01000001"); code != 1 || !strings.Contains(errs, "--value-bits (1024 here)") {
		t.Errorf("get with the wrong width: %q, %d", errs, code)
	}
	if _, errs, code = ctl(t, map[string]string{adminVariable: nobody.URL}, "", "get",
		"0x01000001"); code != 1 || !strings.Contains(errs, "is it running") || !strings.Contains(errs, "--server") {
		t.Errorf("get without controller and server: %q, %d", errs, code)
	}
	if _, errs, code = ctl(t, none, "", "--admin", nobody.URL, "-s", server, "--value-bits", "128", "put",
		"0x01000001", "x"); code != 1 || !strings.Contains(errs, "leasing 1 sessions") {
		t.Errorf("put with a controller that is named and not there: %q, %d", errs, code)
	}
}

// TestService checks that a command accepts answers from the chain's service address, even if it
// queries a switch's own address. It ignores answers from other addresses.
func TestService(t *testing.T) {
	c := newController(t, refchain.Config{})
	c.chain.Place(0x01000001)
	service, own := c.chain.Addresses()[0].String(), c.chain.Addresses()[1].String()
	env := map[string]string{adminVariable: c.url}
	for _, tc := range []struct {
		args string
		env  map[string]string
		code int
		err  string
	}{
		{args: "-s " + own + " --value-bits 1024 --service " + service},
		{args: "-s " + own, env: env},
		{args: "-s " + own + " --value-bits 1024 --timeout 300ms", code: exitError, err: "no answer but from " + service + ".*\nname the chain's service address, where answers come from, with --service"},
		{args: "-s " + own + " --value-bits 1024 --timeout 300ms --service 127.0.0.77", code: exitError, err: "is --server right"},
		{args: "-s " + own + " --service 127.0.0.1:x", code: exitUsage, err: `--service 127.0.0.1:x: "x" is not a port`},
	} {
		out, errs, code := ctl(t, tc.env, "", append(strings.Fields(tc.args), "put", "--session", "9:1", "0x01000001", "x")...)
		if code != tc.code || !regexp.MustCompile(tc.err).MatchString(errs) || tc.err == "" && errs != "" {
			t.Errorf("%s: %d, %q, %q", tc.args, code, out, errs)
		}
		c.chain.Lease(9, netip.MustParseAddr("127.0.0.1"), 0) // both runs get the same session and sequence numbers
	}
	// The load goes to specific switches. The controller or --server names the source address of
	// the answers.
	for _, args := range []string{"--switch s1", "--switch s1 -s " + service + " --value-bits 1024"} {
		out, errs, code := ctl(t, env, "", append([]string{"-o", "json", "bench", "--count", "50", "--keys", "0x01000001"}, strings.Fields(args)...)...)
		var r benchResult
		if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 || r.Queries != 50 ||
			r.Lost+r.Failed+r.Foreign != 0 {
			t.Errorf("bench %s: %v, %d, %q, %+v", args, err, code, errs, r)
		}
	}
	out, _, code := ctl(t, nil, "", "-s", own, "--value-bits", "1024", "--timeout", "300ms", "bench", "--count", "2", "--keys", "0x01000001")
	if code != 0 || !strings.Contains(out, "packets from addresses that were not asked") {
		t.Errorf("bench of a switch's own address alone: %d, %q", code, out)
	}
}

// TestNoSwitchAnswers checks the error if no switch answers. It says which hosts switches answer.
func TestNoSwitchAnswers(t *testing.T) {
	c := newController(t, refchain.Config{Loss: 1})
	env := map[string]string{adminVariable: c.url}
	for _, args := range []string{"get 0x01000001", "put --session 9:1 0x01000001 x", "bench --count 3 --keys 0x01000001"} {
		_, errs, code := ctl(t, env, "", append([]string{"--timeout", "200ms"}, strings.Fields(args)...)...)
		if code != exitError || !strings.Contains(errs, "run this on one") {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
	}
}

// TestAuthority checks that a clear error refuses what a host may not do. The controller leases
// sessions to the host that writes.
func TestAuthority(t *testing.T) {
	c := newController(t, refchain.Config{})
	c.chain.Place(0x01000001, 0x01000002)
	c.chain.SetRealm(0x01000001, 7)
	env := map[string]string{adminVariable: c.url}
	for _, args := range []string{"get 0x01000001", "put 0x01000001 x", "cas 0x01000001 0 x", "del 0x01000001"} {
		_, errs, code := ctl(t, env, "", strings.Fields(args)...)
		if code != exitError || !strings.Contains(errs, "access denied: ask the operator for access") ||
			strings.Contains(errs, "not known") == strings.HasPrefix(args, "get") {
			t.Errorf("%s: %d, %q", args, code, errs)
		}
		out, _, code := ctl(t, env, "", append([]string{"-o", "json"}, strings.Fields(args)...)...)
		var said struct{ Error failure }
		if err := json.Unmarshal([]byte(out), &said); err != nil || code != exitError ||
			said.Error.Kind != "denied" || said.Error.OutcomeUnknown == strings.HasPrefix(args, "get") {
			t.Errorf("%s: %v, %d, %q", args, err, code, out)
		}
	}
	if out, errs, code := ctl(t, env, "", "session", "new", "--address", "10.0.0.3"); code != 0 {
		t.Error(out, errs)
	}
	if out, errs, code := ctl(t, env, "", "session", "new"); code != 0 {
		t.Error(out, errs)
	}
	if out, errs, code := ctl(t, env, "", "bench", "--mix", "put=1", "--count", "5", "--keys", "0x01000002"); code != 0 {
		t.Error(out, errs)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.hosts)
	if n != 9 || c.hosts[n-3] != "10.0.0.3" {
		t.Errorf("sessions were leased to %v", c.hosts)
	}
	for i, host := range c.hosts {
		if i != n-3 && host != "127.0.0.1" {
			t.Errorf("sessions were leased to %v, want 127.0.0.1", c.hosts)
		}
	}
}

// TestReadme runs the commands of the README's console blocks, with shorter measurements.
func TestReadme(t *testing.T) {
	readme, err := os.ReadFile("../../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	c := newController(t, refchain.Config{})
	env := map[string]string{adminVariable: c.url}
	var said []string
	for _, line := range regexp.MustCompile(`(?m)^netcraq> h\d bin/netcraqctl ([^#\n]*)`).FindAllStringSubmatch(string(readme), -1) {
		args := strings.Fields(strings.Replace(line[1], "5s", "50ms", 1))
		out, errs, code := ctl(t, env, "", args...)
		if code != 0 {
			t.Errorf("%q: %q, %d", args, errs, code)
		}
		said = append(said, out)
	}
	want := []string{"/leader", "alice", "1.2", "1.3", "queries in"}
	for i, part := range want {
		if len(said) != len(want) || !strings.Contains(said[i], part) {
			t.Fatalf("said %q, want %q", said, want)
		}
	}
}

func TestBench(t *testing.T) {
	c := newController(t, refchain.Config{})
	env := map[string]string{adminVariable: c.url}
	if _, errs, code := ctl(t, env, "", "bench"); code != 1 || !strings.Contains(errs, "no key is placed") {
		t.Errorf("bench without keys: %q, %d", errs, code)
	}
	for n := range 5 {
		if _, errs, code := ctl(t, env, "", "chain", "add-key", "/key/"+strconv.Itoa(n)); code != 0 {
			t.Fatal(errs)
		}
	}
	out, errs, code := ctl(t, env, "", "bench", "--count", "2000", "--mix", "get=8,put=2", "--zipf", "0.99", "--seed", "5")
	if !strings.Contains(out, "\nNOT FOUND: the key has no value: nobody has put one yet, or it was deleted\n") {
		t.Errorf("bench does not say what NOT FOUND is: %q", out)
	}
	if code != 0 || !regexp.MustCompile(`(?s)^2,000 queries in .*64 queries outstanding, to 127.0.0.1:\d+: [\d,]+ a second\n.*get +1,[56]\d\d.*put +\d{3}.*all +2,000.*retransmitted \d+`).MatchString(out) {
		t.Errorf("bench: %q, %q, %d", out, errs, code)
	}
	out, errs, code = ctl(t, env, "", "-o", "json", "bench", "--duration", "200ms", "--serial", "--keys", "0x01000001-0x01000003,/key/4", "--switch", "s1")
	var r benchResult
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != 0 {
		t.Fatalf("bench: %v, %q, %q, %d", err, out, errs, code)
	}
	l := r.Latency
	if r.Queries == 0 || r.Keys != 4 || !r.Serial || r.Outstanding != 1 ||
		r.Ops["get"].NotFound+r.Ops["get"].OK != r.Queries || r.QueriesPerSecond <= 0 ||
		r.Addresses[0] != c.chain.Addresses()[1] ||
		l.Min <= 0 || l.P50 < l.Min || l.P90 < l.P50 || l.P99 < l.P90 || l.P999 < l.P99 || l.Max < l.P999 {
		t.Errorf("bench: %+v", r)
	}
	for _, args := range []string{"--mix get", "--mix get=x", "--mix frob=1", "--mix get=0", "--keys 0x01000005-0x01000001", "--keys 0x01000005-0x02000001"} {
		if _, errs, code := ctl(t, env, "", append([]string{"bench"}, strings.Fields(args)...)...); code != 2 {
			t.Errorf("bench %s: %q, %d", args, errs, code)
		}
	}
	for args, want := range map[string]int{"--chain other": 3, "--keys /none": 3, "--switch s9": 3, "--value-size 129 --mix put=1": 1, "--outstanding 0": 1} {
		if _, errs, code := ctl(t, env, "", append([]string{"bench", "--count", "1"}, strings.Fields(args)...)...); code != want {
			t.Errorf("bench %s: %q, %d; want %d", args, errs, code, want)
		}
	}
	if v := c.chain.Violations(); v != nil {
		t.Error(v)
	}
}

// TestAdmin checks that commands reach the controller through its socket, or over TCP with a token
// from a file. The page command prints its link.
func TestAdmin(t *testing.T) {
	const token = "0123456789abcdef0123456789abcdef"
	dir := t.TempDir()
	var shown string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/page", func(w http.ResponseWriter, r *http.Request) {
		shown = r.Header.Get("Authorization")
		_ = json.NewEncoder(w).Encode(admin.PageLink{URL: "http://127.0.0.1:1/?token=x", Seconds: 60})
	})
	over := httptest.NewServer(mux)
	defer over.Close()
	socket := filepath.Join(dir, "c.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	beside := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	beside.Start()
	defer beside.Close()
	file := filepath.Join(dir, "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		env   map[string]string
		shown string
		fails string
	}{
		{[]string{"--admin", "unix://" + socket, "page"}, nil, "", ""},
		{[]string{"page"}, map[string]string{adminVariable: "unix://" + socket}, "", ""},
		{[]string{"--admin", over.URL, "page"}, nil, "", ""},
		{[]string{"--admin", over.URL, "--token-file", file, "page"}, nil, "Bearer " + token, ""},
		{[]string{"--admin", over.URL, "page"}, map[string]string{tokenVariable: file}, "Bearer " + token, ""},
		{[]string{"--admin", over.URL, "--token-file", file + "x", "page"}, nil, "", "no such file"},
		{[]string{"--admin", "unix://" + socket + "x", "page"}, nil, "", "is it running"},
	} {
		shown = ""
		var out, complaint bytes.Buffer
		args := append([]string{"netcraqctl"}, c.args...)
		code := Netcraqctl.Run(t.Context(), args, Streams{strings.NewReader(""), &out, &complaint},
			func(k string) string { return c.env[k] })
		if c.fails != "" {
			if code != exitError || !strings.Contains(complaint.String(), c.fails) {
				t.Errorf("%q: %d %s", c.args, code, complaint.String())
			}
		} else if code != exitOK || shown != c.shown || out.String() != "http://127.0.0.1:1/?token=x\n" {
			t.Errorf("%q: %d %s%s, the controller was shown %q", c.args, code, out.String(), complaint.String(), shown)
		}
	}
}
