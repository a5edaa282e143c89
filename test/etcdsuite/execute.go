package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/test/etcdsuite/inplace"
)

// outcome is the result of a test.
type outcome struct {
	Result string   // pass, fail or skip
	Output []string `json:",omitempty"` // the end of the output of a failed test
	// the test failed at first, and passed when it was run again
	Again   bool `json:",omitempty"`
	Seconds float64
}

// results are outcomes by package and test, for example "integration TestKVPut/1".
type results map[string]*outcome

// mode runs all tests in one mode.
func (o *options) mode(ctx context.Context, mode string) (results, error) {
	if mode == placed || mode == byClient {
		return o.inNamespace(ctx, mode)
	}
	var env []string
	if mode == passed {
		env = o.environment()
	}
	return o.packages(ctx, mode, env)
}

// environment returns the environment variables for tests with gateways.
func (o *options) environment() []string {
	return []string{inplace.EnvGateway + "=" + o.path("bin", "etcd-monitor"), inplace.EnvFixtures + "=" +
		o.path("tests", "fixtures"), inplace.EnvLog + "=" + o.path("gateways.log"), inplace.EnvFlags + "=" + o.flags}
}

// packages runs the tests of all packages.
func (o *options) packages(ctx context.Context, mode string, env []string) (results, error) {
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	all := results{}
	for _, s := range chosen {
		if !s.runs(mode) {
			fmt.Fprintf(os.Stderr, "%s %s: not run: %s\n", mode, s.name, s.notByClient)
			continue
		}
		for _, pkg := range s.packages {
			began := time.Now()
			got, err := o.runPackage(ctx, mode, pkg, append(env, inplace.EnvPassword+"="+s.password))
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", mode, pkg, err)
			}
			maps.Copy(all, got)
			fmt.Fprintf(os.Stderr, "%s %s: %s in %v\n", mode, pkg, got.count(), time.Since(began).Round(time.Second))
		}
	}
	b, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		return nil, err
	}
	return all, os.WriteFile(o.path(mode+".json"), b, 0o644)
}

// earlier returns the results of an earlier run in a mode, if there was one. If the mode straight
// is not run, the other modes are compared with these results.
func (o *options) earlier(mode string) (got results, err error) {
	b, err := os.ReadFile(o.path(mode + ".json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return got, json.Unmarshal(b, &got)
}

// runPackage runs the tests of a package until each test has ended. It starts another process if a
// test ends its process. At the end it runs the failed tests again.
func (o *options) runPackage(ctx context.Context, mode, pkg string, env []string) (results, error) {
	names, err := o.listTests(ctx, mode, pkg)
	if err != nil {
		return nil, err
	}
	all := results{}
	for attempt := range o.attempts {
		for len(names) > 0 {
			got, done, err := o.process(ctx, mode, pkg, env, names)
			if err != nil {
				return nil, err
			}
			for name, r := range got {
				if before := all[name]; attempt > 0 && before != nil && before.Result == "fail" && r.Result == "pass" {
					r.Again = true
				}
				all[name] = r
			}
			if len(done) == 0 {
				return nil, fmt.Errorf("the tests' process ends before %s begins", names[0])
			}
			names = slices.DeleteFunc(names, func(n string) bool { return done[n] })
		}
		names = o.failed(mode, pkg, all)
	}
	return all, nil
}

// failed returns the top-level tests in which a test has failed that is not known to fail.
func (o *options) failed(mode, pkg string, all results) (out []string) {
	for name, r := range all.leaves() {
		if top, _, _ := strings.Cut(strings.TrimPrefix(name, pkg+" "), "/"); r.Result == "fail" &&
			!o.expected(mode, name) && !slices.Contains(out, top) {
			out = append(out, top)
		}
	}
	slices.Sort(out)
	return out
}

// listTests returns the names of a package's chosen tests and examples.
func (o *options) listTests(ctx context.Context, mode, pkg string) (out []string, err error) {
	b, err := command(ctx, o.directory(pkg), o.binary(pkg, mode), "-test.list", ".")
	if err != nil {
		return nil, err
	}
	for name := range strings.Lines(string(b)) {
		name = strings.TrimSpace(name)
		if (strings.HasPrefix(name, "Test") || strings.HasPrefix(name, "Example")) && o.run.MatchString(name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// event is a line of test2json's output.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// process runs tests in one process. done has the names of the tests that have ended, including a
// test that has ended the process.
func (o *options) process(ctx context.Context, mode, pkg string, env []string, names []string) (got results,
	done map[string]bool, err error) {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = regexp.QuoteMeta(n)
	}
	log, err := os.OpenFile(o.path(mode+"-"+strings.ReplaceAll(pkg, "/", "-")+".log"),
		os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, nil, err
	}
	defer log.Close()
	temp, err := os.MkdirTemp("", "es")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(temp)
	cmd := exec.CommandContext(ctx, "go", "tool", "test2json", "-t", o.binary(pkg, mode),
		"-test.v=test2json", "-test.timeout=0", "-test.run", "^("+strings.Join(quoted, "|")+")$")
	cmd.Dir = o.directory(pkg)
	cmd.Env = append(append(os.Environ(), env...), "TMPDIR="+temp)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Stderr = log
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, nil, err
	}
	r := &reader{pkg: pkg, got: results{}, done: map[string]bool{}, output: map[string][]string{}}
	// On SIGQUIT, Go prints the stacks of the goroutines, which show where the tests hang.
	watch := time.AfterFunc(o.limit, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) })
	r.began = func() { watch.Reset(o.limit) }
	r.read(io.TeeReader(out, log))
	watch.Stop()
	out.Close()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill the gateways that a test has not stopped
	cmd.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	r.interrupted()
	return r.got, r.done, nil
}

// leaked is printed by an etcd test that finds goroutines of earlier tests.
const leaked = "Found leaked goroutined BEFORE test"

// reader turns test2json's output into outcomes.
type reader struct {
	pkg     string
	got     results
	done    map[string]bool
	running []string // tests that have started and have not ended
	output  map[string][]string
	began   func()
}

func (r *reader) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		var e event
		if json.Unmarshal(line, &e) != nil || e.Test == "" {
			continue
		}
		switch e.Action {
		case "run":
			r.running = append(r.running, e.Test)
			r.began()
		case "output":
			r.output[e.Test] = append(r.output[e.Test], e.Output)
		case "pass", "fail", "skip":
			if e.Action == "skip" && strings.Contains(strings.Join(r.output[e.Test], ""), leaked) {
				// An earlier test has left goroutines, so etcd's framework would skip this test and
				// all later tests. They must run in another process.
				r.running = nil
				return
			}
			r.end(e.Test, e.Action, e.Elapsed)
		}
	}
}

func (r *reader) end(test, result string, seconds float64) {
	o := &outcome{Result: result, Seconds: seconds}
	if result == "fail" {
		o.Output = notable(r.output[test])
	}
	delete(r.output, test)
	r.got[r.pkg+" "+test] = o
	r.running = slices.DeleteFunc(r.running, func(n string) bool { return n == test })
	if !strings.Contains(test, "/") {
		r.done[test] = true
	}
}

// interrupted marks the tests that were running when the process ended as failed.
func (r *reader) interrupted() {
	for _, test := range slices.Clone(r.running) {
		r.output[test] = append(r.output[test], "the process ended during this test\n")
		r.end(test, "fail", 0)
	}
}

// source matches the beginning of a line that a test has logged.
var source = regexp.MustCompile(`^\s+[a-z_0-9]+\.go:\d+: `)

// notable returns the lines of a failed test's output, without those that appear to be a server's
// log.
func notable(lines []string) (out []string) {
	log := false
	for _, l := range lines {
		if source.MatchString(l) {
			log = strings.Contains(l, "logger.go:") || strings.Contains(l, "cluster.go:")
		} else if strings.HasPrefix(l, "---") || strings.HasPrefix(l, "    ---") || strings.HasPrefix(l, "panic:") {
			log = false
		}
		if !log && !strings.HasPrefix(l, "===") {
			out = append(out, strings.TrimRight(l, "\n"))
		}
	}
	return out[max(0, len(out)-40):]
}

// leaves returns the tests that have no subtests. It also returns tests that failed although none
// of their subtests failed.
func (r results) leaves() results {
	out := maps.Clone(r)
	for name := range r {
		for i := range name {
			if name[i] != '/' || !strings.Contains(name[:i], " ") {
				continue
			}
			if whole := r[name[:i]]; whole != nil && (whole.Result != "fail" || r.failsWithin(name[:i])) {
				delete(out, name[:i])
			}
		}
	}
	return out
}

// failsWithin returns whether a subtest of a test failed.
func (r results) failsWithin(name string) bool {
	for n, o := range r {
		if o.Result == "fail" && strings.HasPrefix(n, name+"/") {
			return true
		}
	}
	return false
}

func (r results) count() string {
	n := map[string]int{}
	again := 0
	for _, o := range r.leaves() {
		n[o.Result]++
		if o.Again {
			again++
		}
	}
	return fmt.Sprintf("%d passed (%d of them not at once), %d failed, %d skipped", n["pass"], again, n["fail"], n["skip"])
}

var errUnknown = errors.New("there are failures that known.txt does not have, or it has some that are none")
