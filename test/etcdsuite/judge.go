package main

import (
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// failure is a line of known.txt. It names a test that fails in a mode but not in the mode
// straight, and the reason.
type failure struct {
	// test is package and name. NAME/... stands for all tests within NAME, of which at least one
	// fails.
	mode, test, reason string
	line               int
	atTimes            bool // the test passes at times
}

// readKnown reads the list of known failures. Its lines have the form MODE PACKAGE TEST: REASON. If
// the reason begins with "at times, ", the test may also pass.
func readKnown(path string) (out []failure, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := 0
	for line := range strings.Lines(string(b)) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		what, reason, ok := strings.Cut(line, ": ")
		fields := strings.Fields(what)
		if !ok || len(fields) != 3 || !slices.Contains([]string{passed, placed, byClient}, fields[0]) {
			return nil, fmt.Errorf("%s:%d: give passed, placed or client, a package, a test, a colon and the reason", path, n)
		}
		out = append(out, failure{fields[0], fields[1] + " " + fields[2], reason, n, strings.HasPrefix(reason, "at times, ")})
	}
	return out, nil
}

func (f failure) covers(test string) bool {
	if whole, ok := strings.CutSuffix(f.test, "/..."); ok {
		return test == whole || strings.HasPrefix(test, whole+"/")
	}
	return test == f.test
}

// judge prints the numbers of passed tests. It returns an error if the failures differ from the
// list.
func (o *options) judge(w io.Writer, got map[string]results) error {
	chosen, err := o.chosen()
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "%-42s", "passed of all")
	for _, mode := range o.modes {
		fmt.Fprintf(w, "%14s", mode)
	}
	fmt.Fprintln(w)
	for _, s := range chosen {
		for _, pkg := range s.packages {
			fmt.Fprintf(w, "%-42s", pkg)
			for _, mode := range o.modes {
				if !s.runs(mode) {
					fmt.Fprintf(w, "%14s", "-")
					continue
				}
				pass, all := 0, 0
				for name, r := range got[mode].leaves() {
					if strings.HasPrefix(name, pkg+" ") && r.Result != "skip" {
						all++
						if r.Result == "pass" {
							pass++
						}
					}
				}
				fmt.Fprintf(w, "%14s", fmt.Sprintf("%d/%d", pass, all))
			}
			fmt.Fprintln(w)
		}
	}
	wrong := 0
	for _, mode := range o.modes {
		if mode == straight {
			continue
		}
		used := make([]bool, len(o.known))
		leaves := got[mode].leaves()
		for _, test := range slices.Sorted(maps.Keys(leaves)) {
			r := leaves[test]
			before := got[straight][test]
			if r.Result == "skip" && before != nil && before.Result == "pass" {
				fmt.Fprintf(w, "SKIPPED %s %s, which is not skipped straight\n", mode, test)
				wrong++
			}
			if r.Result != "fail" || before != nil && before.Result == "fail" {
				continue
			}
			covered := false
			for i, f := range o.known {
				if f.mode == mode && f.covers(test) {
					used[i], covered = true, true
				}
			}
			if !covered {
				fmt.Fprintf(w, "FAIL %s %s\n\t%s\n", mode, test, strings.Join(r.Output, "\n\t"))
				wrong++
			}
		}
		for i, f := range o.known {
			if _, ran := f.ran(leaves); f.mode == mode && ran && !used[i] && !f.atTimes {
				fmt.Fprintf(w, "known.txt:%d: %s %s does not fail: take the line out\n", f.line, f.mode, f.test)
				wrong++
			}
		}
	}
	if wrong > 0 {
		return errUnknown
	}
	return nil
}

// expected returns whether a test is known to fail.
func (o *options) expected(mode, test string) bool {
	return slices.ContainsFunc(o.known, func(f failure) bool { return f.mode == mode && f.covers(test) })
}

// ran returns whether a test that the line names was run, and the name of the test.
func (f failure) ran(all results) (string, bool) {
	for test := range all {
		if f.covers(test) {
			return test, true
		}
	}
	return "", false
}
