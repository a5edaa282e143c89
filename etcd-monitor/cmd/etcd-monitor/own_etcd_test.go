package main

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
)

// TestSlim checks that the tag slim builds the program without etcd's server. Such a program
// refuses options that need the server. make run uses this tag.
func TestSlim(t *testing.T) {
	if etcdTxnOps != embed.DefaultMaxTxnOps {
		t.Errorf("etcd allows %d operations in a transaction", embed.DefaultMaxTxnOps)
	}
	list, err := exec.Command("go", "list", "-deps", "-tags", "slim", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"go.etcd.io/etcd/server/v3/embed", "go.etcd.io/bbolt", "go.etcd.io/raft", "k8s.io/"} {
		if strings.Contains("\n"+string(list), "\n"+not) {
			t.Errorf("it imports %s", not)
		}
	}
	program := filepath.Join(t.TempDir(), "etcd-monitor")
	if out, err := exec.Command("go", "build", "-buildvcs=false", "-tags", "slim", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitBadInput || !strings.Contains(string(out), "name one with --endpoints") {
		t.Errorf("without --endpoints: %v, %s", err, out)
	}
}
