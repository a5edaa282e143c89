package admin

import (
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
)

// TestTokenOfASocket checks that a client of a controller's Unix socket needs no token, so the
// token's file may be missing or unreadable. A client over TCP needs the file.
func TestTokenOfASocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := r.Header.Get("Authorization"); h != "" {
			t.Errorf("the socket is shown %q", h)
		}
		_, _ = w.Write([]byte("[]"))
	})}
	defer s.Close()
	go func() { _ = s.Serve(l) }()
	// the first file is missing, and the second cannot be read because it is a folder
	for _, missing := range []string{filepath.Join(t.TempDir(), "token"), t.TempDir()} {
		for address, want := range map[string]string{"unix://" + path: "", "unix:///nowhere.sock,unix://" + path: "",
			"unix://" + path + ",http://127.0.0.1:1": "", "127.0.0.1:1": "the token for the controller"} {
			c := NewClient(address, TokenFile(missing))
			_, err := c.Chains(t.Context())
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s with the token file %s: %v, want %q", address, missing, err, want)
			}
			c.Close()
		}
	}
}
