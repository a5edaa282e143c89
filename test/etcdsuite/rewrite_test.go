package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// In a rewritten file, calls of clientv3's New and NewKV go to package direct, whatever name the
// file gives to clientv3. Nothing else changes, and line numbers stay the same.
func TestRewrite(t *testing.T) {
	const imports = "; import netcraqdirect \"github.com/netcraq/netcraq/test/etcdsuite/direct\"\n"
	for _, c := range []struct {
		name, src, want string
		calls           int
	}{
		{"by its own name", `package a // clientv3.New

import "go.etcd.io/etcd/client/v3"

func f() { clientv3.New(clientv3.Config{}); clientv3.NewLease(nil) }
`, `package a; import netcraqdirect "github.com/netcraq/netcraq/test/etcdsuite/direct" // clientv3.New

import "go.etcd.io/etcd/client/v3"

func f() { netcraqdirect.New(clientv3.Config{}); clientv3.NewLease(nil) }
`, 1},
		{"by another name", `package a

import v3 "go.etcd.io/etcd/client/v3"

var make, kv = v3.New, v3.NewKV(v3.NewCtxClient(nil))
`, `package a` + imports + `
import v3 "go.etcd.io/etcd/client/v3"

var make, kv = netcraqdirect.New, netcraqdirect.NewKV(v3.NewCtxClient(nil))
`, 2},
		{"another package's", "package a\n\nimport clientv3 \"example.com\"\n\nvar c = clientv3.New()\n", "", 0},
		{"no call", "package a\n\nimport clientv3 \"go.etcd.io/etcd/client/v3\"\n\nvar c clientv3.Config // clientv3.New\n", "", 0},
	} {
		got, calls, err := rewrite([]byte(c.src))
		if err != nil || calls != c.calls || calls > 0 && string(got) != c.want {
			t.Errorf("%s: %d calls, %v:\n%s", c.name, calls, err, got)
		}
	}
	if _, _, err := rewrite([]byte("no Go")); err == nil {
		t.Error("what is no Go was rewritten")
	}
}

// rewriteTests rewrites files of the framework and of the suites that run on client/etcd. If it
// rewrites no file, it returns an error, because the tests would not use client/etcd.
func TestRewriteTests(t *testing.T) {
	o := &options{out: t.TempDir()}
	source := "package a\n\nimport clientv3 \"go.etcd.io/etcd/client/v3\"\n\nvar c = clientv3.New\n"
	for _, f := range []string{"framework/integration/a.go", "common/b_test.go", "common/more/c_test.go", "integration/d_test.go"} {
		path := o.path("tests", f)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	chosen := []suite{{name: "common", packages: []string{"common"}},
		{name: "integration", packages: []string{"integration"}, notByClient: "why"}}
	got, err := o.rewriteTests(chosen)
	if err != nil || len(got) != 2 || got[o.path("tests/framework/integration/a.go")] == "" {
		t.Fatalf("%v, %v", got, err)
	}
	b, err := os.ReadFile(got[o.path("tests/common/b_test.go")])
	if err != nil || !strings.Contains(string(b), "var c = netcraqdirect.New\n") {
		t.Errorf("%v\n%s", err, b)
	}
	if err := o.writeOverlay(byClient, got); err != nil {
		t.Fatal(err)
	}
	var overlay struct{ Replace map[string]string }
	if b, err = os.ReadFile(o.overlay(byClient)); err != nil || json.Unmarshal(b, &overlay) != nil ||
		len(overlay.Replace) != 2 {
		t.Errorf("%v\n%s", err, b)
	}
	if err := os.RemoveAll(o.path("tests")); err != nil {
		t.Fatal(err)
	}
	if got, err := o.rewriteTests(chosen); err == nil {
		t.Errorf("there are no tests, and %v are rewritten", got)
	}
}
