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

// outcome is what came of a test.
type outcome struct {
	Result  string   // pass, fail or skip
	Output  []string `json:",omitempty"` // the end of it, of a test that failed
	Again   bool     `json:",omitempty"` // it passed when it was run again
	Seconds float64
}

// results are outcomes by package and test: "integration TestKVPut/1".
type results map[string]*outcome

// mode runs all tests in one way.
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

// environment is what tests with gateways are told.
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

// earlier are the results of an earlier run in a mode, if there was one: without -modes straight
// they are what others are compared with.
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

// runPackage runs the tests of a package until each has come to its end, also where one ends the
// process; and those that failed again.
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

// failed are the tests in which something failed that is not known to.
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

// listTests are the names of a package's tests and examples that are chosen.
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

// event is what test2json says.
type event struct {
	Action, Test, Output string
	Elapsed              float64
}

// process runs tests in one process. done are the tests of names that came to an end, or ended the
// process.
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
	// Go tells where it hangs
	watch := time.AfterFunc(o.limit, func() { syscall.Kill(-cmd.Process.Pid, syscall.SIGQUIT) })
	r.began = func() { watch.Reset(o.limit) }
	r.read(io.TeeReader(out, log))
	watch.Stop()
	out.Close()
	syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // gateways that a test has left
	cmd.Wait()
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	r.interrupted()
	return r.got, r.done, nil
}

// leaked is what etcd's tests say that begin where goroutines of others are left.
const leaked = "Found leaked goroutined BEFORE test"

// reader makes outcomes of what test2json says.
type reader struct {
	pkg     string
	got     results
	done    map[string]bool
	running []string // tests that have begun and not ended
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
				// Of a test before it goroutines are left, and all that follow would be skipped for
				// them: they are for another process.
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

// interrupted: what was running when the process ended has failed.
func (r *reader) interrupted() {
	for _, test := range slices.Clone(r.running) {
		r.output[test] = append(r.output[test], "the process ended during this test\n")
		r.end(test, "fail", 0)
	}
}

// source begins a line that a test has logged.
var source = regexp.MustCompile(`^\s+[a-z_0-9]+\.go:\d+: `)

// notable are the lines of a failed test's output that are not the log of a server, as far as one
// can tell.
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

// leaves are the tests that are not made of others, and those that failed though none of theirs
// did.
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

// failsWithin says whether a test that is part of another failed.
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
