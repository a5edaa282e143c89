package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	// pageBlock is a console block of a page, with the comment that says why no test runs it.
	pageBlock = regexp.MustCompile("(?ms)^(<!-- not run: [^>]+[ \n]-->\n)?```console\n(.*?)^```")
	// pageComment is what a reader sees of a command that is explained.
	pageComment = regexp.MustCompile(`  +# .*$`)
)

// TestPages types the console blocks of tutorials and how-to pages at a netcraq dev, in their
// order, and compares what they print. "..." on a page stands for text that differs from run to
// run. A block after a comment "not run: REASON" is left out.
func TestPages(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil {
		t.Fatal(err)
	}
	more, err := filepath.Glob("../../docs/how-to/*.md")
	if err != nil {
		t.Fatal(err)
	}
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
			u := newUser(t)
			u.onPath()
			var server *running
			for _, block := range blocks {
				if block[1] != "" {
					left++
					continue
				}
				ran++
				for _, step := range strings.Split("\n"+block[2], "\n$ ")[1:] {
					server = u.typed(step, server)
				}
			}
		})
	}
	t.Logf("%d console blocks ran, %d are marked as not run", ran, left)
}

// typed runs a line of a page and compares what it prints; it returns the netcraq dev that runs.
func (u *user) typed(step string, server *running) *running {
	u.t.Helper()
	line, want, _ := strings.Cut(strings.TrimSuffix(step, "\n")+"\n", "\n")
	for strings.HasSuffix(line, "\\") {
		next, rest, _ := strings.Cut(want, "\n")
		line, want = line+"\n"+next, rest
	}
	line = pageComment.ReplaceAllString(line, "")
	if args, isDev := strings.CutPrefix(line, "netcraq dev"); isDev {
		if server != nil {
			server.interrupt(u.t)
		}
		return u.dev(strings.Fields(strings.ReplaceAll(args, "~", filepath.Join(u.home, "run")))...)
	}
	c := exec.Command("sh", "-c", line)
	var said bytes.Buffer
	c.Env, c.Dir, c.Stdout, c.Stderr = u.env, filepath.Join(u.home, "run"), &said, &said
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	done := time.AfterFunc(soon, func() { _ = c.Process.Kill() })
	defer done.Stop()
	err := c.Run()
	if err != nil && c.ProcessState == nil {
		u.t.Fatal(err)
	}
	pattern := strings.ReplaceAll(regexp.QuoteMeta(want), `\.\.\.`, `.*`)
	if !regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(said.String()) {
		u.t.Errorf("$ %s\n%s\nThe page says:\n%s", line, said.String(), want)
	}
	return server
}

// onPath lets a shell find the command as netcraq, patient as [user.command] is.
func (u *user) onPath() {
	u.t.Helper()
	bin := filepath.Join(u.home, "bin")
	script := "#!/bin/sh\nexec " + u.binary + " --timeout 60s \"$@\"\n"
	if err := os.Mkdir(bin, 0o755); err != nil {
		u.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "netcraq"), []byte(script), 0o755); err != nil {
		u.t.Fatal(err)
	}
	u.env = append(u.env, "PATH="+bin+":"+os.Getenv("PATH"))
}
