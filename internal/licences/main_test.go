package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestCheck checks a tree of prepared dependencies. check must name each dependency with a wrong
// licence, and the licence.
func TestCheck(t *testing.T) {
	mit, err := os.ReadFile("testdata/MIT.txt")
	if err != nil {
		t.Fatal(err)
	}
	agpl, err := os.ReadFile("testdata/AGPL.txt")
	if err != nil {
		t.Fatal(err)
	}
	root, cache := t.TempDir(), t.TempDir()
	write(t, root, map[string]string{
		"go.mod": "module github.com/netcraq/netcraq\n\nrequire (\n\tgithub.com/netcraq/netcraq/api v0.1.0\n" +
			"\texample.org/good v1.0.0\n\texample.org/agpl v1.0.0\n\texample.org/Big v1.0.0\n\texample.org/none v1.0.0\n" +
			"\texample.org/own v1.0.0\n\texample.org/both v1.0.0\n\texample.org/old v1.0.0\n\texample.org/darwin v1.0.0\n)\n\n" +
			"replace example.org/old => example.org/new v2.0.0+incompatible\n",
		"js/package.json": `{"dependencies": {"a": "1"}}`,
		"js/package-lock.json": `{"packages": {"": {}, "node_modules/a": {"version": "1.0.0", "license": "MIT"},
			"node_modules/b": {"version": "2.0.0", "license": "GPL-3.0"}, "node_modules/c": {"version": "3.0.0"}}}`,
		"bare/package.json":  `{"devDependencies": {"a": "1"}}`,
		"alone/package.json": `{"name": "alone"}`,
		"ours/package.json":  `{"dependencies": {"a": "file:../js"}}`,
		"some/package.json":  `{"dependencies": {"a": "file:../js", "b": "1"}}`,
	})
	write(t, cache, map[string]string{
		"example.org/good@v1.0.0/LICENSE":              string(mit),
		"example.org/agpl@v1.0.0/COPYING":              string(agpl),
		"example.org/!big@v1.0.0/LICENCE.txt":          string(mit),
		"example.org/none@v1.0.0/license.go":           "package none",
		"example.org/own@v1.0.0/LICENSE.md":            "You may use this if we like you.\n",
		"example.org/good@v1.0.0/LICENSE-3rdparty.csv": "Component,Origin,License,Copyright\n",
		"example.org/both@v1.0.0/LICENSE":              string(mit) + string(agpl),
		"example.org/new@v2.0.0+incompatible/LICENSE":  string(mit),
	})
	if out, err := exec.Command("git", "-C", root, "init", "-q").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Setenv("GOMODCACHE", cache)
	findings, checked, err := check(root)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"bare/package.json: it has dependencies, but no package-lock.json that names their licences",
		"go.mod: example.org/agpl@v1.0.0: COPYING: the licence AGPL-3.0-or-later is not accepted",
		"go.mod: example.org/none@v1.0.0: it has no licence file",
		"go.mod: example.org/own@v1.0.0: LICENSE.md: the text is no known licence (0 % of it is)",
		"go.mod: example.org/both@v1.0.0: LICENSE: the licence AGPL-3.0-or-later is not accepted",
		"js/package.json: node_modules/b@2.0.0: the licence GPL-3.0 is not accepted",
		"js/package.json: node_modules/c@3.0.0: it declares no licence",
		"some/package.json: it has dependencies, but no package-lock.json that names their licences",
	}
	if !slices.Equal(findings, want) {
		t.Errorf("findings:\n%s\nwant:\n%s", strings.Join(findings, "\n"), strings.Join(want, "\n"))
	}
	const says = "7 Go modules and 3 Node.js packages have accepted licences; 1 Go modules that this machine has not built are not checked"
	if checked != says {
		t.Errorf("checked: %q, want %q", checked, says)
	}
}

func write(t *testing.T, folder string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
