package sidecar

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Mistakes on the command line and in the policy are told before anything is opened.
func TestCommandLine(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "policy.yaml")
	if err := os.WriteFile(broken, []byte("rules: []"), 0o600); err != nil {
		t.Fatal(err)
	}
	durable := filepath.Join(t.TempDir(), "durable.yaml")
	if err := os.WriteFile(durable, []byte("namespaces: {shop: {durable: true}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string // in stdout or stderr
	}{
		{"--help", exitOK, "--take-over"},
		{"--speed 9", exitBadInput, "unknown flag"},
		{"here", exitBadInput, "unknown command"},
		{"--log-level loud", exitBadInput, "give debug, info, warn or error"},
		{"--socket-mode 999", exitBadInput, "want octal permissions"},
		{"--socket-mode 1777", exitBadInput, "want octal permissions"},
		{"--socket-group nosuchgroup_", exitBadInput, "there is no such group"},
		{"--policy /nowhere.yaml", exitBadInput, "no such file"},
		{"--policy " + broken, exitBadInput, "field rules not found"},
		{"--policy " + durable, exitBadInput, "give --endpoints"},
		{"--cacert x", exitBadInput, "are for --endpoints"},
		{"--endpoints https://127.0.0.1:1 --cacert /nowhere.pem", exitBadInput, "no such file"},
		{"--endpoints http://127.0.0.1:1 --cacert /nowhere.pem", exitBadInput, "is without TLS"},
		{"--endpoints http://127.0.0.1:1,https://127.0.0.1:2", exitBadInput, "or none does"},
		{"--endpoints 127.0.0.1:1 --cert x", exitBadInput, "give a certificate and its key"},
		{"--endpoints 127.0.0.1:1 --user x", exitBadInput, "give a user and the file"},
		{"--streams-etcd /nowhere.yaml", exitBadInput, "no such file"},
		{"--streams-etcd " + broken, exitBadInput, "field rules not found"},
		{"--metrics 127.0.0.1:-1", exitFailed, "--metrics"},
		{"--push=perhaps", exitBadInput, "invalid argument"},
		{"--listen x", exitBadInput, "want unix:///PATH or tcp://HOST:PORT"},
		{"--listen tcp://0.0.0.0", exitBadInput, "missing port"},
	} {
		var out bytes.Buffer
		code := Run("netcraq-sidecar", strings.Fields(c.args), &out, &out)
		if code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: exit code %d and\n%s\nwant %d and %q", c.args, code, out.String(), c.code, c.want)
		}
	}
}
