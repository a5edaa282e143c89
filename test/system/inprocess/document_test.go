package inprocess

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/test/system/lab"
)

// documented is an example in docs/protocol.md. It has a request and its answer.
type documented struct {
	method, path, body string
	status             int
	answer             string
}

// documentedCalls returns the examples in "What a client asks the controller".
func documentedCalls(t *testing.T) (out []documented) {
	t.Helper()
	b, err := os.ReadFile("../../../docs/protocol.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(b), "\n## What a client asks the controller\n")
	section, _, _ = strings.Cut(section, "\n## ")
	block := regexp.MustCompile("(?s)```http\n([A-Z]+) (\\S+)\n(.*?)\n?([0-9]{3})\n(.*?)```")
	for _, m := range block.FindAllStringSubmatch(section, -1) {
		status, err := strconv.Atoi(m[4])
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, documented{m[1], m[2], strings.TrimSpace(m[3]), status, strings.TrimSpace(m[5])})
	}
	if n := strings.Count(section, "```http\n"); n == 0 || n != len(out) {
		t.Fatalf("of %d examples %d can be read", n, len(out))
	}
	return out
}

// shape describes the fields and types of a JSON value. It leaves out values that differ from run
// to run. A list has the shape of its first element.
func shape(v any) string {
	switch v := v.(type) {
	case map[string]any:
		var fields []string
		for _, name := range slices.Sorted(maps.Keys(v)) {
			fields = append(fields, name+": "+shape(v[name]))
		}
		return "{" + strings.Join(fields, ", ") + "}"
	case []any:
		if len(v) == 0 {
			return "[]"
		}
		return "[" + shape(v[0]) + "]"
	}
	return fmt.Sprintf("%T", v)
}

// TestDocumentedCalls makes the calls of the admin API that docs/protocol.md describes, as a client
// in any language would. The client must get the documented answers, and must be able to write and
// read the key that it has added.
func TestDocumentedCalls(t *testing.T) {
	x := newTestbed(t, lab.Layout{N: 3, Chains: []lab.Chain{{ID: 1, Name: "a", Members: []int{1, 2, 3}, Lease: 200}}})
	r := x.controller()
	r.WaitAllReady()
	var chains []admin.Chain
	var keys []admin.Key
	var sessions admin.Sessions
	for _, d := range documentedCalls(t) {
		path := strings.ReplaceAll(d.path, "LEASE", sessions.Lease)
		request, err := http.NewRequestWithContext(t.Context(), d.method, r.URL+path, strings.NewReader(d.body))
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || response.StatusCode != d.status {
			t.Fatalf("%s %s: %s, want %d: %s, %v", d.method, d.path, response.Status, d.status, got, err)
		}
		if d.answer == "" {
			if len(got) > 0 {
				t.Errorf("%s %s: %s, want nothing", d.method, d.path, got)
			}
			continue
		}
		var is, said any
		if err := json.Unmarshal([]byte(d.answer), &said); err != nil {
			t.Fatalf("%s %s: the document's answer: %v", d.method, d.path, err)
		}
		if err := json.Unmarshal(got, &is); err != nil || shape(is) != shape(said) {
			t.Errorf("%s %s: %s, %v; the document says %s", d.method, d.path, got, err, d.answer)
		}
		into := map[string]any{"GET /v1/chains": &chains, "POST /v1/sessions": &sessions}[d.method+" "+d.path]
		if into == nil {
			keys = append(keys, admin.Key{})
			into = &keys[len(keys)-1]
		}
		if err := json.Unmarshal(got, into); err != nil {
			t.Fatal(err)
		}
		if d.method == http.MethodPost && d.path == "/v1/sessions" {
			// the next documented calls release the sessions, so use them now
			s := &sessions.Sessions[0]
			for _, value := range []string{"one", "two"} {
				x.mustWrite(lab.ServiceAddrOf(1), s, keys[0].KeyID, value)
				p, err := x.read(lab.ServiceAddrOf(1), keys[0].KeyID)
				if err != nil || p.Status != wire.OK || string(p.Value) != value {
					t.Errorf("the key that was added: %+v, %v", p, err)
				}
			}
		}
	}
	if len(chains) != 1 || chains[0].ServiceAddress != lab.ServiceAddrOf(1).String() || sessions.Lease == "" {
		t.Errorf("chains %+v, sessions %+v", chains, sessions)
	}
}
