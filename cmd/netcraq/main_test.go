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

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

// envMain is the environment variable that makes the test binary run the command.
const envMain = "NETCRAQ_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(envMain) != "" {
		main()
	}
	os.Exit(m.Run())
}

const (
	soon   = 2 * time.Minute
	nobody = 65534
)

// user runs commands without privileges. If the test runs as root, they run as the user nobody.
type user struct {
	t      *testing.T
	binary string
	home   string
	env    []string
}

func newUser(t *testing.T) *user {
	t.Helper()
	home, err := os.MkdirTemp("", "netcraq-user-") // other users cannot enter the folder of t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	u := &user{t: t, binary: filepath.Join(home, "netcraq"), home: home}
	b, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(u.binary, b, 0o755)
	}
	if err == nil {
		err = os.Chmod(home, 0o755)
	}
	run := filepath.Join(home, "run")
	if err == nil {
		err = os.Mkdir(run, 0o700)
	}
	if err == nil && os.Getuid() == 0 {
		err = os.Chown(run, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	u.env = []string{envMain + "=1", "PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR=" + run}
	return u
}

func (u *user) socket() string { return filepath.Join(u.home, "run", "netcraq.sock") }

func (u *user) command(args ...string) *exec.Cmd {
	if args[0] != "dev" { // commands are slow with the race detector on a busy machine
		args = append([]string{"--timeout", "60s"}, args...)
	}
	c := exec.Command(u.binary, args...)
	u.owns(c)
	return c
}

// owns makes a command run as the user.
func (u *user) owns(c *exec.Cmd) {
	c.Env, c.Dir = u.env, "/"
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
}

// run runs a command to its end, and returns its output and exit code.
func (u *user) run(args ...string) (out, errs string, code int) {
	u.t.Helper()
	var o, e bytes.Buffer
	c := u.command(args...)
	c.Stdout, c.Stderr = &o, &e
	err := c.Run()
	if err != nil && c.ProcessState == nil {
		u.t.Fatal(err)
	}
	return o.String(), e.String(), c.ProcessState.ExitCode()
}

// must runs a command and fails the test if the command fails. It returns the command's output.
func (u *user) must(args ...string) string {
	u.t.Helper()
	out, errs, code := u.run(args...)
	if code != 0 {
		u.t.Fatalf("%q: exit code %d: %s%s", args, code, out, errs)
	}
	return strings.TrimSuffix(out, "\n")
}

// running is a command that was started and may still run.
type running struct {
	*exec.Cmd
	said  *syncbuffer.Buffer
	ended chan struct{}
}

func (u *user) start(args ...string) *running {
	u.t.Helper()
	return u.starts(u.command(args...))
}

// starts starts a program as the user.
func (u *user) starts(c *exec.Cmd) *running {
	u.t.Helper()
	u.owns(c)
	r := &running{c, new(syncbuffer.Buffer), make(chan struct{})}
	r.Stdout, r.Stderr = r.said, r.said
	if err := r.Start(); err != nil {
		u.t.Fatal(err)
	}
	go func() { _ = r.Wait(); close(r.ended) }()
	u.t.Cleanup(func() { _ = r.Process.Kill(); <-r.ended })
	return r
}

func (r *running) says(t *testing.T, what string) {
	t.Helper()
	poll.Until(t, soon, "it says "+what, func() bool {
		select {
		case <-r.ended:
			if !strings.Contains(r.said.String(), what) {
				t.Fatalf("it has ended, and never said %q: %s", what, r.said)
			}
		default:
		}
		return strings.Contains(r.said.String(), what)
	}, r.said.String)
}

// interrupt sends the signal of Ctrl-C to the command and waits for its end.
func (r *running) interrupt(t *testing.T) (code int) {
	t.Helper()
	_ = r.Process.Signal(os.Interrupt)
	select {
	case <-r.ended:
	case <-time.After(soon):
		t.Fatalf("it does not end: %s", r.said)
	}
	return r.ProcessState.ExitCode()
}

// dev starts netcraq dev.
func (u *user) dev(args ...string) *running {
	u.t.Helper()
	r := u.start(append([]string{"dev", "--page", "none", "--gateway", "127.0.0.1:0"}, args...)...)
	r.says(u.t, "Ctrl-C")
	return r
}

// here runs the command in the test's own process.
func here(t *testing.T, args ...string) (out, errs string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	env := func(string) string { return "" }
	code = program(env).Run(t.Context(), append([]string{"netcraq"}, args...),
		operate.Streams{In: strings.NewReader(""), Out: &o, Err: &e}, env)
	return o.String(), e.String(), code
}

// TestUsage checks that mistakes in the command line are found before anything starts, and that the
// message names the right arguments.
func TestUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"dev --switches 0", "--switches 0: pass 1 to 8"},
		{"dev --switches 9", "--switches 9: pass 1 to 8"},
		{"dev --switches many", "invalid argument"},
		{"dev --kill s4", "--kill s4: pass a switch of the chain, s1 to s3"},
		{"dev --kill edge", "pass a switch of the chain"},
		{"dev --kill s1x", "pass a switch of the chain"},
		{"dev --switches 1 --kill s1", "Pass --switches 2 or more"},
		{"dev --after 3s", "pass --kill SWITCH, too"},
		{"dev --kill s2 --after -3s", "pass 0s or more"},
		{"dev --page 0.0.0.0:1", "on the loopback interface"},
		{"dev --page here", "pass HOST:PORT"},
		{"dev --gateway 10.0.0.1:2379", "on the loopback interface"},
		{"dev --listen 192.0.2.7:20037", "only over TLS and with a token. Add --listen-token FILE"},
		{"dev --listen 192.0.2.7 --listen-token t", "pass HOST:PORT with an address of this machine"},
		{"dev --listen :20037 --listen-token t", "pass HOST:PORT with an address of this machine"},
		{"dev --listen-token t", "pass --listen HOST:PORT, too"},
		{"dev --tls-cert c --tls-key k", "pass --listen HOST:PORT, too"},
		{"dev --listen 192.0.2.7:1 --listen-token t --tls-cert c", "belong together"},
		{"dev --listen 192.0.2.7:1 --listen-token t --tls-cert /no/c --tls-key /no/k", "--tls-cert /no/c"},
		{"connect", "usage: netcraq connect HOST:PORT"},
		{"connect here", "pass the HOST:PORT"},
		{"connect h:1", "pass --listen-token FILE"},
		{"connect h:1 --listen-token /no/file", "no such file. Copy the file"},
		{"connect h:1 --listen-token /etc/passwd", "Run chmod 600 /etc/passwd"},
		{"dev --etcd localhost", "pass a client URL of etcd, such as http://127.0.0.1:2379"},
		{"dev --etcd http://h:1,ftp://h:1", "--etcd ftp://h:1: pass a client URL"},
		{"dev --etcd http://h:1/v3", "pass a client URL"},
		{"dev --etcd http://h:1 --data d", "pass --data or --etcd"},
		{"dev --etcd http://h:1 --etcd-cacert c", "certificates are for https"},
		{"dev --etcd https://h:1 --etcd-cert c", "pass both"},
		{"dev --etcd-cacert c", "pass --etcd URL, too"},
		{"dev --log-level loud", "pass debug, info, warn or error"},
		{"dev --socket tcp://127.0.0.1:1", "pass the path of a Unix socket"},
		{"dev --socket /" + strings.Repeat("long/", 30), "too long for a Unix socket"},
		{"dev now", "usage: netcraq dev"},
		{"devv", `unknown command "devv"; did you mean dev? Otherwise see netcraq --help`},
		{"gte color", "did you mean get?"},
		{"set color blue", "did you mean put?"},
		{"frobnicate", `unknown command "frobnicate"; see netcraq --help`},
		{"put color", "usage: netcraq put KEY VALUE"},
		{"put color x --ttl 1ms", "--ttl 1ms: pass a time of 500ms to 1h"},
		{"put color x --ttl 1m --lease l", "pass --ttl or --lease"},
		{"put color x --if-version 1", "pass a version such as 1.7"},
		{"put color x --if-version 1.7 --if-absent", "pass one"},
		{"put color hex:0", "Pass text:hex:0"},
		{"cas color one x", "pass a version such as 1.7"},
		{"transact", "pass what to write: --put or --delete"},
		{"transact --put color", "--put color: pass KEY=VALUE"},
		{"transact --if-version color=1 --delete color", "--if-version color 1: pass a version such as 1.7"},
		{"transact --put color=hex:0", "Pass text:hex:0"},
		{"transact --put a=- --put b=-", "standard input is a value twice. Pass @FILE for one of them"},
		{"transact color=red", "usage: netcraq transact"},
		{"watch", "pass keys, or --prefix"},
		{"watch a --prefix b", "pass keys, or --prefix"},
		{"list a b", "usage: netcraq list [PREFIX]"},
		{"list a --limit -1", "--limit -1: pass 0 or more"},
		{"lock a b", "a command only after --"},
		{"semaphore a none", "pass a number above 0"},
		{"lock a --ttl 1ms", "pass 500ms to 1h"},
		{"lock a --wait 1s --no-wait", "not --no-wait as well"},
		{"get a -o yaml", "want text or json"},
	} {
		if _, errs, code := here(t, strings.Fields(c.args)...); code != 2 || !strings.Contains(errs, c.want) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", c.args, code, errs, c.want)
		}
	}
	t.Setenv("TMPDIR", t.TempDir())
	_, errs, code := here(t, "get", "color", "--socket", "/nowhere/s")
	if code != 1 || !strings.Contains(errs, "no server listens at /nowhere/s. Start one with netcraq dev") {
		t.Errorf("without a server: %d, %s", code, errs)
	}
	_, errs, code = here(t, "get", "color")
	if code != 1 || !strings.Contains(errs, "found no NetCRAQ server") || !strings.Contains(errs, ": netcraq dev\n") {
		t.Errorf("without a socket: %d, %s", code, errs)
	}
}

// TestHelp checks that a sentence says what each command does, and that the lines of its help are
// not too long.
func TestHelp(t *testing.T) {
	all, _, code := here(t, "--help")
	for _, want := range []string{"dev", "get", "list", "transact", "watch", "lock", "chain", "switch", "doctor", "completion", "version"} {
		if code != 0 || !strings.Contains(all, "\n  "+want+" ") {
			t.Errorf("netcraq --help has no %s:\n%s", want, all)
		}
	}
	imperative := regexp.MustCompile(`^[A-Z][a-z]+,? .*[^.]$`)
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		if cmd.Name() == "completion" { // cobra wrote the texts of this command
			return
		}
		path := strings.Fields(cmd.CommandPath())[1:]
		out, errs, code := here(t, append(path, "--help")...)
		if code != 0 || errs != "" || !imperative.MatchString(cmd.Short) {
			t.Errorf("%s: %d, %s; short text %q", path, code, errs, cmd.Short)
		}
		for line := range strings.SplitSeq(out, "\n") {
			if len([]rune(line)) > 80 {
				t.Errorf("%s --help has a line of %d columns: %s", path, len([]rune(line)), line)
			}
		}
		for _, sub := range cmd.Commands() {
			look(sub)
		}
	}
	for _, cmd := range commandTree(t).Commands() {
		look(cmd)
	}
}
