package etcdtest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var build = struct {
	sync.Mutex
	path map[string]string
}{path: map[string]string{}}

// Tool builds one of go.mod's tools and returns its path. Each test binary builds a tool once, into
// its own directory.
func Tool(t testing.TB, module string) string {
	t.Helper()
	build.Lock()
	defer build.Unlock()
	if p := build.path[module]; p != "" {
		return p
	}
	dir, err := os.MkdirTemp("", "netcraq-tool")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.Base(filepath.Dir(module)))
	if out, err := exec.Command("go", "build", "-o", path, module).CombinedOutput(); err != nil {
		t.Fatalf("building %s: %v\n%s", module, err, out)
	}
	build.path[module] = path
	return path
}

// RemoveTools removes the tools that Tool built. TestMain calls it.
func RemoveTools() {
	for _, p := range build.path {
		os.RemoveAll(filepath.Dir(p))
	}
}

// Etcdctl is etcd's command-line client with global flags that it gets in every call.
type Etcdctl struct {
	Path  string
	Flags []string
}

// Result has the output of a call of etcdctl. OK reports whether the call succeeded.
type Result struct {
	Out, Err string
	OK       bool
}

// Run calls etcdctl with input as its standard input. It ends the call after 20 s.
func (e Etcdctl) Run(t testing.TB, input string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := e.Command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &errs
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("etcdctl %s: no end after 20 s; so far %s%s", strings.Join(args, " "), &out, &errs)
	}
	return Result{out.String(), errs.String(), err == nil}
}

// Must calls etcdctl and returns its output. If the call fails, so does the test.
func (e Etcdctl) Must(t testing.TB, input string, args ...string) string {
	t.Helper()
	r := e.Run(t, input, args...)
	if !r.OK {
		t.Fatalf("etcdctl %s: %s%s", strings.Join(args, " "), r.Out, r.Err)
	}
	return r.Out
}

// Command returns a call of etcdctl that is not started yet.
func (e Etcdctl) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, e.Path, append(append([]string{}, e.Flags...), args...)...)
	cmd.WaitDelay = time.Second
	return cmd
}
