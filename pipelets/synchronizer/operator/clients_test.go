package operator

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/testutil/testcerts"
)

// TestWebhookClients checks the option --webhook-client-ca. With it, the webhook must refuse a
// client without a certificate, and a client whose certificate was signed by another CA.
func TestWebhookClients(t *testing.T) {
	trusted, other := testcerts.NewAuthority(t), testcerts.NewAuthority(t)
	only, err := signedBy(trusted.File)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {}))
	s.TLS = &tls.Config{}
	only(s.TLS)
	s.StartTLS()
	defer s.Close()
	for who, a := range map[string]*testcerts.Authority{"nobody": nil, "another's": other, "the API server": trusted} {
		c := &tls.Config{InsecureSkipVerify: true}
		if a != nil {
			files, _ := a.Issue("client", "kube-apiserver")
			pair, err := tls.LoadX509KeyPair(files.CertFile, files.KeyFile)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		r, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: c}}).Get(s.URL)
		if err == nil {
			r.Body.Close()
		}
		if (err == nil) != (a == trusted) {
			t.Errorf("a client with the certificate of %s: %v", who, err)
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{empty: "has no certificate in PEM", empty + "-missing": "no such file"} {
		if _, err := signedBy(file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
