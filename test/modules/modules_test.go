// Package modules_test builds programs outside this repository with the modules that the repository
// publishes.
package modules_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"

	"github.com/netcraq/netcraq/api/buildinfo"
	"github.com/netcraq/netcraq/internal/modproxy"
)

// These limits bound the number of modules in the module graph of a program. One is for a program
// that imports a client, the other for a program that builds the switch.
const (
	most         = 10
	mostOfSwitch = 80
)

// version is the version of the next release.
var version = "v" + buildinfo.Version()

// published are the folders of the published modules.
var published = []string{"api", "client", "switch"}

// TestPrograms builds programs that import the clients. They use neither this repository and its
// replace directives, nor a network.
func TestPrograms(t *testing.T) {
	proxy := t.TempDir()
	for _, folder := range published {
		publish(t, proxy, folder, "")
	}
	for name, text := range map[string]string{
		"node": `package main

import (
	"context"

	"github.com/netcraq/netcraq/client/node"
	"github.com/netcraq/netcraq/client/streams"
)

func main() {
	_, _ = node.Connect(context.Background(), node.Config{})
	_, _ = streams.Open(context.Background(), streams.Config{})
}
`,
		"udp": `package main

import (
	"context"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
)

func main() { _, _ = client.New(context.Background(), client.Config{Profile: wire.Profile128}) }
`,
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram(t, proxy, "client", text)
			p.run("build", "-trimpath", "-o", os.DevNull, ".")
			p.checkGraph(most)
		})
	}
}

// TestInstall installs netcraq-switch without this repository and its replace directives, as a user
// who needs only a P4 switch does.
func TestInstall(t *testing.T) {
	proxy := t.TempDir()
	publish(t, proxy, "api", "")
	publish(t, proxy, "switch", "")
	p := newProgram(t, proxy, "switch", "package main\n\nfunc main() {}\n")
	p.environment = append(p.environment, "GOBIN="+p.dir)
	p.run("install", "-trimpath", "github.com/netcraq/netcraq/switch/cmd/netcraq-switch@"+version)
	said, err := exec.Command(filepath.Join(p.dir, "netcraq-switch"), "--version").CombinedOutput()
	if want := "netcraq-switch " + buildinfo.Version() + " "; err != nil || !strings.HasPrefix(string(said), want) {
		t.Errorf("netcraq-switch --version says %q (%v), not %q", said, err, want)
	}
	p.checkGraph(mostOfSwitch)
	for _, path := range p.graph() {
		if path == "github.com/netcraq/netcraq" || path == "github.com/netcraq/netcraq/client" {
			t.Errorf("the switch requires %s", path)
		}
	}
}

// TestHeavy checks that the limit detects a client module that requires too many modules.
func TestHeavy(t *testing.T) {
	proxy := t.TempDir()
	publish(t, proxy, "api", "")
	publish(t, proxy, "client", "\nrequire example.org/heavy "+version+"\n")
	heavy := "module example.org/heavy\n\ngo 1.26.0\n"
	for _, name := range []string{"example.org/a", "example.org/b", "example.org/c"} {
		heavy += "\nrequire " + name + " " + version + "\n"
		layOut(t, proxy, name, "module "+name+"\n\ngo 1.26.0\n", nil)
	}
	layOut(t, proxy, "example.org/heavy", heavy, nil)
	p := newProgram(t, proxy, "client", "package main\n\nimport _ \"github.com/netcraq/netcraq/client/node\"\n\nfunc main() {}\n")
	if graph := p.graph(); len(graph) <= most {
		t.Errorf("with a heavy module the graph has %d modules:\n%s", len(graph), strings.Join(graph, "\n"))
	}
}

// publish writes a module of this repository in the form that make release gives a module proxy. It
// appends `more` to the module's go.mod.
func publish(t *testing.T, proxy, folder, more string) {
	t.Helper()
	v := module.Version{Path: "github.com/netcraq/netcraq/" + folder, Version: version}
	mod, err := os.ReadFile(filepath.Join("../..", folder, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	if err := zip.CreateFromDir(&packed, v, filepath.Join("../..", folder)); err != nil {
		t.Fatal(err)
	}
	content := packed.Bytes()
	if folder == "switch" {
		if mod, content, err = modproxy.Installable(v, mod, content); err != nil {
			t.Fatal(err)
		}
	}
	layOut(t, proxy, v.Path, string(mod)+more, content)
}

// layOut writes the files of a module in a module proxy.
func layOut(t *testing.T, proxy, path, mod string, packed []byte) {
	t.Helper()
	m := module.Version{Path: path, Version: version}
	if err := modproxy.Write(proxy, m, time.Time{}, []byte(mod), packed); err != nil {
		t.Fatal(err)
	}
}

// program is a Go program outside this repository.
type program struct {
	t           *testing.T
	dir         string
	environment []string
}

// newProgram writes a program that requires the module of a folder.
func newProgram(t *testing.T, proxy, folder, text string) *program {
	t.Helper()
	// The go.mod files of the module's graph may have to be downloaded first.
	all := exec.Command("go", "list", "-m", "all")
	all.Dir = filepath.Join("../..", folder)
	if out, err := all.CombinedOutput(); err != nil {
		t.Fatalf("go list -m all in %s: %v\n%s", folder, err, out)
	}
	cache, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	// This folder has modules such as golang.org/x/...
	downloaded := filepath.Join(strings.TrimSpace(string(cache)), "cache", "download")
	p := &program{t: t, dir: t.TempDir(), environment: append(os.Environ(), "GOPROXY=file://"+proxy+",file://"+downloaded,
		"GOFLAGS=-mod=mod -modcacherw", "GOMODCACHE="+t.TempDir(), "GOWORK=off", "GOSUMDB=off", "GONOSUMDB=*", "GOTOOLCHAIN=local")}
	// Go would add only the modules that the program's imports need. This program requires all
	// modules that the module itself requires. So its graph does not depend on the imported
	// package.
	required := "github.com/netcraq/netcraq/" + folder
	mod, err := os.ReadFile(filepath.Join(proxy, required, "@v", version+".mod"))
	if err != nil {
		t.Fatal(err)
	}
	requires, err := modfile.Parse("go.mod", mod, nil)
	if err != nil {
		t.Fatal(err)
	}
	needs := "module example.org/program\n\ngo 1.26.0\n\nrequire " + required + " " + version + "\n"
	for _, r := range requires.Require {
		needs += "\nrequire " + r.Mod.Path + " " + r.Mod.Version + " // indirect\n"
	}
	for name, text := range map[string]string{"main.go": text, "go.mod": needs} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p *program) run(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = p.dir, p.environment
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// checkGraph checks that the program's graph has at most `most` modules.
func (p *program) checkGraph(most int) {
	p.t.Helper()
	graph := p.graph()
	p.t.Logf("%d modules", len(graph))
	if len(graph) > most {
		p.t.Errorf("the program's graph has %d modules, %d are the most:\n%s", len(graph), most, strings.Join(graph, "\n"))
	}
}

// graph returns the modules in the program's graph.
func (p *program) graph() []string {
	p.t.Helper()
	return strings.Split(strings.TrimSpace(p.run("list", "-m", "-f", "{{.Path}}", "all")), "\n")
}
