package main

import (
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
)

var (
	// pageBlock matches a console or YAML block of a page. It also matches a comment before the
	// block that says why no test runs the block.
	pageBlock = regexp.MustCompile("(?ms)^(<!-- not run: [^>]+[ \n]-->\n)?```(?:console|yaml)\n(.*?)^```")
	// pageFile matches the first line of a YAML block that later blocks use as a file.
	pageFile = regexp.MustCompile(`^# ([\w.-]+\.yaml)\n`)
	// pageComment matches a comment after a command. The comment is for the reader.
	pageComment = regexp.MustCompile(`  +# .*$`)
	// pageServer matches a server's address in the server's start-up output.
	pageServer = regexp.MustCompile(`(etcd gateway  |ready: etcd's API at |metrics at )(http://127\.0\.0\.1:\d+)`)
)

// pageAddresses are the servers' addresses on the pages. The servers of the test use other
// addresses, because those on the pages may be in use.
var pageAddresses = map[string]string{
	"etcd gateway  ":        "http://127.0.0.1:2379",
	"ready: etcd's API at ": "http://127.0.0.1:23790",
	"metrics at ":           "http://127.0.0.1:23791",
}

// TestPages runs the console blocks of tutorials and how-to pages, in order, against a netcraq dev,
// and compares the output. "..." on a page stands for text that varies between runs. A block after
// a comment "not run: REASON" is skipped. A YAML block that begins with "# NAME.yaml" becomes that
// file for the following blocks.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/how-to/*.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := otherPrograms(t)
	ran, left := 0, 0
	for _, page := range append(pages, more...) {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := pageBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(page))+"/"+filepath.Base(page), func(t *testing.T) {
			r := &reader{user: newUser(t), programs: programs, here: map[string]string{}}
			r.onPath(programs)
			for _, block := range blocks {
				if block[1] != "" {
					left++
					continue
				}
				if name := pageFile.FindStringSubmatch(block[2]); name != nil {
					r.saves(name[1], block[2])
				}
				steps := strings.Split("\n"+block[2], "\n$ ")[1:]
				ran += min(len(steps), 1)
				for _, step := range steps {
					r.types(step)
				}
			}
		})
	}
	t.Logf("%d console blocks ran, %d are marked as not run", ran, left)
}

// reader is a user who follows a page.
type reader struct {
	*user
	programs string            // folder of the other programs
	server   *running          // the running netcraq dev server
	here     map[string]string // addresses of the test's servers, by the addresses on the page
}

// saves writes a file that a page shows. It copies files of a package's programs from the package.
func (r *reader) saves(name, text string) {
	r.t.Helper()
	const installed = "/usr/share/netcraq/p4"
	copies := filepath.Join(r.home, "p4")
	if strings.Contains(text, installed) {
		if err := os.RemoveAll(copies); err != nil {
			r.t.Fatal(err)
		}
		if err := os.CopyFS(copies, os.DirFS("../../p4src/compiled")); err != nil {
			r.t.Fatal(err)
		}
	}
	file := filepath.Join(r.home, "run", name)
	if err := os.WriteFile(file, []byte(strings.ReplaceAll(text, installed, copies)), 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// serves records the addresses of a running server.
func (r *reader) serves(server *running) {
	for _, found := range pageServer.FindAllStringSubmatch(server.said.String(), -1) {
		r.here[pageAddresses[found[1]]] = found[2]
	}
}

// toHere replaces the addresses of a page. It begins with the longest ones, because an address can
// be a prefix of another.
func (r *reader) toHere() *strings.Replacer {
	var pairs []string
	for _, onPage := range slices.Backward(slices.Sorted(maps.Keys(r.here))) {
		pairs = append(pairs, onPage, r.here[onPage])
	}
	return strings.NewReplacer(pairs...)
}

// types runs a command line of a page and compares its output with the page.
func (r *reader) types(step string) {
	r.t.Helper()
	line, want, _ := strings.Cut(strings.TrimSuffix(step, "\n")+"\n", "\n")
	for strings.HasSuffix(line, "\\") {
		next, rest, _ := strings.Cut(want, "\n")
		line, want = line+"\n"+next, rest
	}
	line = pageComment.ReplaceAllString(line, "")
	line = r.toHere().Replace(line)
	if args, isDev := strings.CutPrefix(line, "netcraq dev"); isDev {
		if r.server != nil {
			r.server.interrupt(r.t)
		}
		r.server = r.dev(strings.Fields(strings.ReplaceAll(args, "~", filepath.Join(r.home, "run")))...)
		r.serves(r.server)
		return
	}
	if args, isGateway := strings.CutPrefix(line, "etcd-monitor "); isGateway {
		gateway := r.starts(exec.Command(filepath.Join(r.programs, "etcd-monitor"), append(strings.Fields(args),
			"--listen-client-urls", "http://127.0.0.1:0", "--metrics-addr", "127.0.0.1:0")...))
		gateway.says(r.t, "ready:")
		r.serves(gateway)
		return
	}
	if line == "etcd" {
		r.here["http://127.0.0.1:2379"] = "http://" + etcdtest.Start(r.t)
		return
	}
	said := r.prints(line)
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\.\.\.`, `.*`)
	if !regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(said) {
		r.t.Errorf("$ %s\n%s\nThe page says:\n%s", line, said, want)
	}
}

// prints runs a command line in a shell and returns its output.
func (u *user) prints(line string) string {
	u.t.Helper()
	c := exec.Command("sh", "-c", line)
	u.owns(c)
	var said bytes.Buffer
	c.Dir, c.Stdout, c.Stderr = filepath.Join(u.home, "run"), &said, &said
	done := time.AfterFunc(soon, func() { _ = c.Process.Kill() })
	defer done.Stop()
	err := c.Run()
	if err != nil && c.ProcessState == nil {
		u.t.Fatal(err)
	}
	return said.String()
}

// otherPrograms builds the other programs that the pages start, and returns their folder.
func otherPrograms(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "netcraq-programs-") // other users cannot enter the folder of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	build := exec.Command("go", "build", "-o", folder, "./controlplane/cmd/netcraq-controller",
		"./etcd-monitor/cmd/etcd-monitor")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

// onPath makes the PATH of a user's shell contain the command and the programs in the folder more.
// The command gets longer timeouts, as in [user.command].
func (u *user) onPath(more string) {
	u.t.Helper()
	bin := filepath.Join(u.home, "bin")
	script := "#!/bin/sh\nexec " + u.binary + " --timeout 60s \"$@\"\n"
	if err := os.Mkdir(bin, 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "netcraq"), []byte(script), 0o755); err != nil {
		u.t.Fatal(err)
	}
	u.env = append(u.env, "PATH="+bin+":"+more+":"+os.Getenv("PATH"))
}
