package operate

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
)

// TestPlacement checks that the commands send the right requests and print the answers.
func TestPlacement(t *testing.T) {
	f := func(x float64) *float64 { return &x }
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	var rules []admin.PlacementRule
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/placement", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(admin.Placement{
			Heat: admin.PlacementHeat{Prometheus: "http://p:9090", Window: "1m", Keys: 7,
				ReadsPerSecond: f(1000), HitRatio: f(.5), NetworkMedianSeconds: f(40e-6)},
			Chains:   []admin.PlacementChain{{Name: "main", Ready: true, Slots: 16, Free: 3, Placed: 13, CellBytes: 1024}},
			Placed:   []admin.PlacementKey{{Key: "/hot", Chain: "main", Reads: f(50), Writes: f(1), Code: "serves", Reason: "score 47.0/s"}},
			Others:   []admin.PlacementKey{{Key: "/new", Code: "unknown", Reason: "nothing is known"}},
			Rules:    []admin.PlacementRule{{Key: "/p/", Prefix: true, Choice: "exclude"}, {Key: "/registry/health", Choice: "exclude", Default: true}},
			UnderWay: []admin.PlacementMove{{Time: now, Op: "place", Key: "/next", Reason: "hot"}},
			Recent:   []admin.PlacementMove{{Time: now, Op: "remove", Key: "/old", Reason: "cold", Error: "s2 is away"}},
		})
	})
	mux.HandleFunc("GET /v1/placement/why", func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(admin.PlacementKey{Key: r.URL.Query().Get("key"), Chain: "main", Since: now,
			Code: "serves", Reason: "score 47.0/s", Reads: f(50), Writes: f(1), Score: f(47)})
	})
	mux.HandleFunc("PUT /v1/placement/rules", func(w http.ResponseWriter, r *http.Request) {
		var rule admin.PlacementRule
		if err := json.NewDecoder(r.Body).Decode(&rule); err != nil {
			t.Error(err)
		}
		rules = append(rules, rule)
		if rule.Key == "/refused" {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = w.Write(admin.MarshalError(admin.Errorf(admin.CodeInvalidArgument, "the gateways' own keys are never placed")))
			return
		}
		_ = json.NewEncoder(w).Encode(admin.PlacementKey{Key: rule.Key, Code: "excluded", Reason: "by an operator"})
	})
	s := httptest.NewServer(mux)
	defer s.Close()
	env := map[string]string{adminVariable: s.URL}
	for _, c := range []struct {
		args string
		code int
		want []string
	}{
		{"placement show", 0, []string{"13 of etcd's keys, 3 of 16 slots free, cells of 1024 bytes\n", "1000.0 reads a second, 50.0 % of them", "median 40.0 µs there, ? at etcd", "7 keys by http://p:9090 over 1m",
			"50.0", "/hot", "serves: score 47.0/s", "?", "/new", "exclude /p/*\n", "exclude /registry/health (by default)", "place /next: hot\n", "remove /old: cold; FAILED: s2 is away"}},
		{"placement show -o json", 0, []string{`"hitRatio": 0.5`}},
		{`placement why /a\xff`, 0, []string{`/a\xff is placed in chain main since`, "serves: score 47.0/s\n", "reads 50.0/s, writes 1.0/s, score 47.0"}},
		{"placement pin /a", 0, []string{"/a is not placed\nexcluded: by an operator"}},
		{"placement unpin /a", 0, nil},
		{"placement exclude /p --prefix", 0, []string{"all keys that begin with /p"}},
		{"placement include /p --prefix -o json", 0, []string{`"choice": "include"`}},
		{"placement pin /a --prefix", 0, []string{"all keys that begin with /a"}},
		{"placement pin", exitUsage, []string{"usage: netcraqctl placement pin KEY"}},
		{"placement pin /refused", exitError, []string{"never placed"}},
		{"placement frob", exitUsage, []string{"unknown command"}},
	} {
		out, errs, code := ctl(t, env, "", strings.Fields(c.args)...)
		said := out + errs
		if code != c.code {
			t.Errorf("%s: code %d, want %d:\n%s", c.args, code, c.code, said)
		}
		for _, w := range c.want {
			if !strings.Contains(said, w) {
				t.Errorf("%s: no %q in:\n%s", c.args, w, said)
			}
		}
	}
	want := []admin.PlacementRule{{Key: "/a", Choice: "pin"}, {Key: "/a", Choice: "unpin"},
		{Key: "/p", Prefix: true, Choice: "exclude"}, {Key: "/p", Prefix: true, Choice: "include"}, {Key: "/a", Prefix: true, Choice: "pin"},
		{Key: "/refused", Choice: "pin"}}
	if len(rules) != len(want) {
		t.Fatalf("%+v", rules)
	}
	for i := range want {
		if rules[i] != want[i] {
			t.Errorf("%+v, want %+v", rules[i], want[i])
		}
	}
}
