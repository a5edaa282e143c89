// Command suite runs etcd's own test suites against the gateway and client/etcd (make etcd-suite).
// Each test runs up to four times:
//
//   - straight: The test runs as in etcd. A failure in this mode has nothing to do with NetCRAQ.
//   - passed: The test runs with a gateway instead of etcd's grpc-proxy. The gateway forwards all
//     requests to etcd.
//   - placed: The test runs with such gateways. Every key that a client names is placed in switches
//     on this machine before the request is sent.
//   - client: The test runs without a gateway. Each etcd client that a test makes is passed to
//     client/etcd, as a program would do, and keys are placed in the same way. Only suites that use
//     clientv3 run in this mode.
//
// A test that fails in one of the last three modes, but not in straight, must be in known.txt with
// the reason. If a test in known.txt does not fail, that is also an error.
//
// etcd's tests are the published module go.etcd.io/etcd/tests/v3, in the version of module/go.mod
// and with the checksum of module/go.sum. Go's tools fetch it into the module cache. This command
// compiles a copy in the output directory, because Go cannot replace a file of the cache. For
// gateways, it replaces the file that makes the framework's connections (module/testdata). For
// client/etcd, it replaces the calls of clientv3.New by direct.New (rewrite.go).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// These are the modes in which each test runs.
const (
	straight = "straight"
	passed   = "passed"
	placed   = "placed"
	byClient = "client"
)

var allModes = []string{straight, passed, placed, byClient}

type options struct {
	root   string // root directory of the repository
	out    string
	modes  []string
	suites []string
	run    *regexp.Regexp
	engine string
	flags  string // additional flags of gateways
	// if it is not "", this process runs the mode of this name in its own network namespace, and
	// exits
	inside string
	limit  time.Duration
	known  []failure
	// attempts is the number of failures after which a test counts as failed, unless it is known to
	// fail.
	attempts int
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	var o options
	f := flag.NewFlagSet("suite", flag.ContinueOnError)
	modes := f.String("modes", strings.Join(allModes, ","), "ways to run the tests, with commas")
	suites := f.String("suites", "", "suites to run, with commas: "+strings.Join(names(), ", ")+" (default: all)")
	only := f.String("run", "", "only tests whose names this regular expression finds; the list of known failures is taken for these only")
	f.StringVar(&o.out, "out", "out/etcd-suite", "directory for builds, logs and results")
	f.StringVar(&o.engine, "engine", "auto", "of the switches that keys are placed in: auto, ebpf or interp")
	f.StringVar(&o.flags, "gateway-flags", "", "flags that gateways are given besides, with spaces between them: --relay=false")
	f.DurationVar(&o.limit, "limit", 3*time.Minute, "time limit of one test")
	f.IntVar(&o.attempts, "attempts", 3, "number of attempts for each test; many of etcd's tests depend on time, and the machine may be busy")
	f.StringVar(&o.inside, "inside", "", "for the program's own use")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	var err error
	if o.run, err = regexp.Compile(*only); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	o.modes = strings.Split(*modes, ",")
	for _, mode := range o.modes {
		if !slices.Contains(allModes, mode) {
			return fmt.Errorf("-modes: there is no %q: give some of %s", mode, strings.Join(allModes, ","))
		}
	}
	if *suites != "" {
		o.suites = strings.Split(*suites, ",")
	} else {
		o.suites = names()
	}
	if o.root, err = os.Getwd(); err != nil {
		return err
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	if o.known, err = readKnown(filepath.Join(o.root, "test/etcdsuite/known.txt")); err != nil {
		return err
	}
	if o.inside != "" {
		return o.runInside(ctx)
	}
	return o.all(ctx)
}

// all prepares the tests, runs them in every mode, and compares the results.
func (o *options) all(ctx context.Context) error {
	if err := o.prepare(ctx); err != nil {
		return err
	}
	got := map[string]results{}
	before, err := o.earlier(straight)
	if err != nil {
		return err
	}
	got[straight] = before
	for _, mode := range o.modes {
		if got[mode], err = o.mode(ctx, mode); err != nil {
			return err
		}
	}
	return o.judge(os.Stdout, got)
}
