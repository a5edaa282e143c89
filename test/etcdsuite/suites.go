package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const tests = "go.etcd.io/etcd/tests/v3"

// suite is one or several packages of etcd's tests.
type suite struct {
	name     string
	packages []string // folders below tests/v3 of etcd, or the constant ours
	tags     string
	password string // the password that the tests give to root
	// notByClient is the reason why the suite cannot test client/etcd, which replaces only
	// clientv3's KV and Watcher. If it is "", the suite also runs on client/etcd.
	notByClient string
}

// runs returns whether a suite runs in a mode.
func (s suite) runs(mode string) bool { return s.notByClient == "" || mode != byClient }

var suites = []suite{
	{"clientv3", []string{"integration/clientv3", "integration/clientv3/concurrency", "integration/clientv3/connectivity", "integration/clientv3/examples", "integration/clientv3/experimental/recipes",
		"integration/clientv3/lease", "integration/clientv3/naming", "integration/clientv3/snapshot"}, "", "123", ""},
	{"integration", []string{"integration"}, "", "123", "it asks etcd by gRPC, past clientv3"},
	{"common", []string{"common"}, "integration", "rootPassword",
		"its tests are of leases, members, users and permissions more than of keys, and those are etcd's own on client/etcd"},
	{"robustness", []string{ours}, "", "", "its members have gateways; histories of client/etcd are TestMixed's (client/etcd)"},
}

// ours is the test package in the folder module. etcd's own robustness driver needs binaries with
// failpoints.
const ours = "robustness"

func names() (out []string) {
	for _, s := range suites {
		out = append(out, s.name)
	}
	return out
}

// chosen returns the suites that the options select.
func (o *options) chosen() (out []suite, err error) {
	for _, name := range o.suites {
		i := slices.IndexFunc(suites, func(s suite) bool { return s.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no suite %q: %s", name, strings.Join(names(), ", "))
		}
		out = append(out, suites[i])
	}
	return out, nil
}

func (o *options) path(parts ...string) string {
	return filepath.Join(append([]string{o.out}, parts...)...)
}

// binary returns the path of a package's compiled tests.
func (o *options) binary(pkg, mode string) string {
	return o.path("bin", kind(mode)+"-"+strings.ReplaceAll(pkg, "/", "-")+".test")
}

// kind returns how the tests of a mode are compiled.
func kind(mode string) string {
	if mode == passed || mode == placed {
		return gateway
	}
	return mode
}

// gateway is the kind of the two modes with gateways.
const gateway = "gateway"

// directory returns the working directory for a package's tests.
func (o *options) directory(pkg string) string {
	if pkg == ours {
		return o.module()
	}
	return o.path("tests", pkg)
}

// module returns the directory of the module that requires etcd's tests.
func (o *options) module() string { return filepath.Join(o.root, "test", "etcdsuite", "module") }

// command runs a command in a directory and returns its output.
func command(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir = dir
	// the tests' module requires other versions of modules than the Go workspace
	cmd.Env = append(os.Environ(), "GOWORK=off")
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return out, nil
}

// prepare fetches etcd's tests, compiles them for the chosen modes, and compiles the project's
// commands.
func (o *options) prepare(ctx context.Context) error {
	if err := os.MkdirAll(o.path("bin"), 0o755); err != nil {
		return err
	}
	if err := o.copyTests(ctx); err != nil {
		return err
	}
	for _, c := range []string{"etcd-monitor/cmd/etcd-monitor", "switch/cmd/netcraq-switch", "controlplane/cmd/netcraq-controller"} {
		if _, err := command(ctx, o.root, "go", "build", "-buildvcs=false", "-o", o.path("bin")+"/", "github.com/netcraq/netcraq/"+c); err != nil {
			return err
		}
	}
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	if err := o.writeOverlay(gateway, map[string]string{
		o.path("tests", "framework", "integration", "cluster_direct.go"): filepath.Join(o.module(), "testdata", "cluster_gateway.go"),
	}); err != nil {
		return err
	}
	if slices.Contains(o.modes, byClient) {
		replaced, err := o.rewriteTests(chosen)
		if err != nil {
			return err
		}
		if err := o.writeOverlay(byClient, replaced); err != nil {
			return err
		}
	}
	for _, s := range chosen {
		for _, pkg := range s.packages {
			done := map[string]bool{}
			for _, mode := range o.modes {
				if done[kind(mode)] || !s.runs(mode) {
					continue
				}
				done[kind(mode)] = true
				if err := o.compile(ctx, s, pkg, mode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// compile compiles the tests of a package for a mode.
func (o *options) compile(ctx context.Context, s suite, pkg, mode string) error {
	args := []string{"go", "test", "-c", "-modfile", o.path("go.mod"), "-tags", s.tags, "-o", o.binary(pkg, mode)}
	if mode != straight {
		args = append(args, "-overlay", o.overlay(kind(mode)))
	}
	if pkg == ours {
		args = append(args, ".")
	} else {
		args = append(args, tests+"/"+pkg)
	}
	_, err := command(ctx, o.module(), args...)
	return err
}

// overlay returns the path of Go's overlay file for a kind. The file lists the replaced source
// files.
func (o *options) overlay(kind string) string { return o.path("overlay-" + kind + ".json") }

func (o *options) writeOverlay(kind string, replaced map[string]string) error {
	b, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	return os.WriteFile(o.overlay(kind), b, 0o644)
}

// copyTests copies etcd's tests from the module cache, so that their files can be replaced, and
// writes a go.mod that uses the copy.
func (o *options) copyTests(ctx context.Context) error {
	// Go checks the downloaded module against go.sum.
	out, err := command(ctx, o.module(), "go", "mod", "download", "-json", tests)
	if err != nil {
		return err
	}
	var m struct{ Dir, Version, Error string }
	if err := json.Unmarshal(out, &m); err != nil || m.Error != "" {
		return fmt.Errorf("fetching %s: %w", tests, errors.Join(err, errors.New(m.Error)))
	}
	stamp := o.path("tests", ".version")
	if b, err := os.ReadFile(stamp); err != nil || string(b) != m.Version {
		if err := os.RemoveAll(o.path("tests")); err != nil {
			return err
		}
		if err := copyTree(o.path("tests"), m.Dir); err != nil {
			return fmt.Errorf("copying %s: %w", m.Dir, err)
		}
		if err := os.WriteFile(stamp, []byte(m.Version), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join(o.module(), name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.path(name), b, 0o644); err != nil {
			return err
		}
	}
	edit := []string{"go", "mod", "edit", "-replace", tests + "=" + o.path("tests")}
	for _, module := range []string{"", "/api", "/client", "/client/etcd"} {
		edit = append(edit, "-replace", "github.com/netcraq/netcraq"+module+"="+o.root+module)
	}
	_, err = command(ctx, o.module(), append(edit, o.path("go.mod"))...)
	return err
}

// copyTree copies the files below a directory. The copies are writable, so they can be removed.
func copyTree(to, from string) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
}
