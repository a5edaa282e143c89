package adminserver

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/netcraq/netcraq/api/admin"
)

// places is a placement for tests that records its calls.
type places struct {
	mu    sync.Mutex
	asked []string
	shown admin.Placement
}

func (p *places) note(parts ...string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, strings.Join(parts, " "))
}

func (p *places) Show(context.Context) (*admin.Placement, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.shown
	return &out, nil
}

func (p *places) Why(_ context.Context, key string) (*admin.PlacementKey, error) {
	p.note("why", key)
	return &admin.PlacementKey{Key: key, Code: "cold"}, nil
}

func (p *places) SetRule(_ context.Context, r admin.PlacementRule) (*admin.PlacementKey, error) {
	p.note(r.Choice, r.Key, map[bool]string{true: "prefix"}[r.Prefix])
	return &admin.PlacementKey{Key: r.Key, Code: "pinned"}, nil
}

func (p *places) Evict(_ context.Context, e admin.PlacementEviction) error {
	p.note("evict", e.Key, e.Reason)
	return nil
}

// TestPlacement: the client's calls reach the placement unchanged, however odd the keys are.
// Without placement the API returns an error.
func TestPlacement(t *testing.T) {
	p := &places{shown: admin.Placement{Placed: []admin.PlacementKey{{Key: "/a"}}}}
	s := httptest.NewServer(Handler(&backend{}, p))
	defer s.Close()
	c := admin.NewClient(s.URL)
	if got, err := c.Placement(t.Context()); err != nil || len(got.Placed) != 1 || got.Placed[0].Key != "/a" {
		t.Errorf("%+v, %v", got, err)
	}
	const odd = `/a b&c=%41?\xff+é/../`
	if k, err := c.WhyPlaced(t.Context(), odd); err != nil || k.Key != odd {
		t.Errorf("%+v, %v", k, err)
	}
	if k, err := c.SetPlacementRule(t.Context(), admin.PlacementRule{Key: odd, Choice: "pin"}); err != nil || k.Code != "pinned" {
		t.Errorf("%+v, %v", k, err)
	}
	if k, err := c.SetPlacementRule(t.Context(), admin.PlacementRule{Key: "/p", Prefix: true,
		Choice: "exclude"}); err != nil || k != nil {
		t.Errorf("%+v, %v", k, err)
	}
	if err := c.Evict(t.Context(), admin.PlacementEviction{Key: odd, KeyID: 7, Reason: "silence"}); err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(p.asked, "\n"), "why "+odd+"\npin "+odd+" \nexclude /p prefix\nevict "+odd+" silence"; got != want {
		t.Errorf("asked\n%s\nwant\n%s", got, want)
	}
	_, url := serve(t, &backend{})
	if _, err := admin.NewClient(url).Placement(t.Context()); !errors.Is(err,
		&admin.Error{Code: admin.CodeFailedPrecondition}) || !strings.Contains(err.Error(), "--prometheus") {
		t.Error(err)
	}
}

// TestOtherSites: if a browser on this machine shows another site's page, that page can change
// nothing.
func TestOtherSites(t *testing.T) {
	b := &backend{}
	_, url := serve(t, b)
	for _, c := range []struct {
		header, value string
		status        int
	}{
		{"Origin", "https://evil.example", 403},
		{"Sec-Fetch-Site", "cross-site", 403},
		{"Sec-Fetch-Site", "same-origin", 204},
		{"", "", 204}, // a client without these headers is not a browser
	} {
		req, err := http.NewRequestWithContext(t.Context(), "DELETE", url+"/v1/chains/main/keys/a", nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != c.status || c.status == 403 && !strings.Contains(string(body), "another site") {
			t.Errorf("%s %s: %s %s", c.header, c.value, resp.Status, body)
		}
	}
	if len(b.asked) != 2 {
		t.Errorf("asked %q", b.asked)
	}
}
