package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/test/etcdsuite/inplace"
)

// The committed list of known failures is valid, and names only packages that are run.
func TestKnown(t *testing.T) {
	known, err := readKnown("known.txt")
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
	for _, s := range suites {
		packages = append(packages, s.packages...)
	}
	for _, f := range known {
		pkg, _, _ := strings.Cut(f.test, " ")
		if !slices.Contains(packages, pkg) {
			t.Errorf("known.txt:%d: there is no package %s", f.line, pkg)
		}
	}
	for _, bad := range []string{"straight integration TestA: why", "passed integration TestA", "passed TestA: why"} {
		path := filepath.Join(t.TempDir(), "known")
		if err := os.WriteFile(path, []byte(bad+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := readKnown(path); err == nil {
			t.Errorf("%q was read as %+v", bad, got)
		}
	}
}

// A failure that occurs only with gateways must be in the list, and each test in the list must
// fail.
func TestJudge(t *testing.T) {
	pass, fail, skip := &outcome{Result: "pass"}, &outcome{Result: "fail", Output: []string{"what went wrong"}}, &outcome{Result: "skip"}
	one := failure{mode: placed, test: "common TestB", reason: "r", line: 1}
	atTimes := failure{mode: placed, test: "common TestB", reason: "at times, r", line: 1, atTimes: true}
	all := failure{mode: placed, test: "common TestC/...", reason: "r", line: 2}
	for _, c := range []struct {
		name  string
		runs  results // results in the mode straight
		got   results // results in the mode placed
		known []failure
		said  string // part of judge's error; "" if there must be none
	}{
		{"all pass", results{"common TestA": pass}, results{"common TestA": pass}, nil, ""},
		{"one fails", results{"common TestB": pass}, results{"common TestB": fail}, nil, "FAIL placed common TestB\n\twhat went wrong"},
		{"it is known", results{"common TestB": pass}, results{"common TestB": fail}, []failure{one}, ""},
		{"it is known, and passes", results{"common TestB": pass}, results{"common TestB": pass}, []failure{one}, "known.txt:1: placed common TestB does not fail"},
		{"it is known to fail at times, and passes", results{"common TestB": pass}, results{"common TestB": pass}, []failure{atTimes}, ""},
		{"it is known to fail at times, and fails", results{"common TestB": pass}, results{"common TestB": fail}, []failure{atTimes}, ""},
		{"it is known, and was not run", results{}, results{}, []failure{one}, ""},
		{"it fails straight, too", results{"common TestB": fail}, results{"common TestB": fail}, nil, ""},
		{"it is skipped", results{"common TestB": pass}, results{"common TestB": skip}, nil, "SKIPPED placed common TestB"},
		{"some within one are known", results{}, results{"common TestC": fail, "common TestC/1": fail, "common TestC/2": pass}, []failure{all}, ""},
		{"none within one fails", results{}, results{"common TestC": pass, "common TestC/1": pass}, []failure{all}, "known.txt:2"},
		{"one within another is not covered", results{}, results{"common TestB": fail, "common TestB/1": fail}, []failure{one}, "FAIL placed common TestB/1"},
		{"one fails by itself", results{}, results{"common TestD": fail, "common TestD/1": pass}, nil, "FAIL placed common TestD\n"},
	} {
		o := options{modes: []string{straight, placed}, suites: []string{"common"}, known: c.known}
		var b strings.Builder
		err := o.judge(&b, map[string]results{straight: c.runs, placed: c.got})
		if (err != nil) != (c.said != "") || !strings.Contains(b.String(), c.said) {
			t.Errorf("%s: %v\n%s\nwant %q", c.name, err, &b, c.said)
		}
	}
}

// If a test process ends, the tests that were running count as failed.
func TestReader(t *testing.T) {
	begun := 0
	r := &reader{pkg: "p", got: results{}, done: map[string]bool{}, output: map[string][]string{}, began: func() {
		begun++
	}}
	r.read(strings.NewReader(`{"Action":"run","Test":"TestA"}
{"Action":"run","Test":"TestA/1"}
{"Action":"pass","Test":"TestA/1"}
{"Action":"pass","Test":"TestA","Elapsed":1.5}
no JSON
{"Action":"run","Test":"TestB"}
{"Action":"output","Test":"TestB","Output":"    logger.go:146: a server says\n"}
{"Action":"output","Test":"TestB","Output":"\t\t\tmore\n"}
{"Action":"output","Test":"TestB","Output":"    b_test.go:7: it is wrong\n"}
`))
	r.interrupted()
	if begun != 3 || !r.done["TestA"] || !r.done["TestB"] || len(r.done) != 2 {
		t.Errorf("%d begun, %v done", begun, r.done)
	}
	if a, b := r.got["p TestA"], r.got["p TestB"]; a.Result != "pass" || a.Seconds != 1.5 ||
		b.Result != "fail" || !slices.Equal(b.Output, []string{"    b_test.go:7: it is wrong", "the process ended during this test"}) {
		t.Errorf("%+v, %+v", a, b)
	}
	if leaves := r.got.leaves(); len(leaves) != 2 || leaves["p TestA"] != nil {
		t.Errorf("%v", leaves)
	}
}

// If a test is skipped because an earlier test has left goroutines, it counts as not run, and so do
// the tests after it.
func TestLeaked(t *testing.T) {
	r := &reader{pkg: "p", got: results{}, done: map[string]bool{}, output: map[string][]string{}, began: func() {}}
	r.read(strings.NewReader(`{"Action":"run","Test":"TestA"}
{"Action":"skip","Test":"TestA"}
{"Action":"run","Test":"TestB"}
{"Action":"output","Test":"TestB","Output":"    x.go:1: Found leaked goroutined BEFORE test appears to have leaked :\n"}
{"Action":"skip","Test":"TestB"}
{"Action":"run","Test":"TestC"}
`))
	r.interrupted()
	if len(r.got) != 1 || len(r.done) != 1 || r.got["p TestA"].Result != "skip" {
		t.Errorf("%v, %v done", r.got, r.done)
	}
}

// NextSlot returns each slot only once.
func TestSlots(t *testing.T) {
	path := filepath.Join(t.TempDir(), "slots")
	want := []placement.Entry{{ID: 0x01000001, Chain: "main", Version: 1 << 48}, {ID: 0x01ffffff, Chain: "main",
		Version: 1<<64 - 1}}
	if err := inplace.WriteSlots(path, want); err != nil {
		t.Fatal(err)
	}
	for _, w := range slices.Backward(want) {
		if e, err := inplace.NextSlot(path); err != nil || e != w {
			t.Errorf("%+v, %v; want %+v", e, err, w)
		}
	}
	if e, err := inplace.NextSlot(path); err == nil {
		t.Errorf("%+v was given twice", e)
	}
}

// Every suite has a unique name, by which it can be chosen.
func TestChosen(t *testing.T) {
	o := options{suites: names(), run: regexp.MustCompile("")}
	if got, err := o.chosen(); err != nil || len(got) != len(suites) {
		t.Error(got, err)
	}
	o.suites = []string{"nothing"}
	if _, err := o.chosen(); err == nil {
		t.Error("a suite that is not there was chosen")
	}
}
