package bmthrift

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestCLI runs the files in testdata with BMv2's own simple_switch_CLI and bm_CLI. Each file
// contains commands. The texts that the answer must contain follow each command, one per line.
func TestCLI(t *testing.T) {
	for name := range conversations(t) {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(w *world) { w.noP4 = true })
			commands, want := conversation(t, name)
			answers := converse(t, name, w.thrift, commands)
			for i, c := range commands {
				for _, x := range want[i] {
					if !strings.Contains(answers[i], x) {
						t.Errorf("%s:\n%s\nwithout %q", c, answers[i], x)
					}
				}
			}
		})
	}
}

// TestCLILikeBMv2 runs the files in testdata against BMv2's simple_switch. BMv2's answers must be
// the same as this server's.
func TestCLILikeBMv2(t *testing.T) {
	binary, err := exec.LookPath("simple_switch")
	if err != nil {
		t.Skipf("BMv2 is not installed: %v", err)
	}
	for name := range conversations(t) {
		t.Run(name, func(t *testing.T) {
			l := listen(t)
			address := l.Addr().String()
			_ = l.Close()
			_, port, _ := net.SplitHostPort(address)
			ctx, cancel := context.WithCancel(t.Context())
			cmd := exec.CommandContext(ctx, binary, "--thrift-port", port, "--device-id", "1",
				"--notifications-addr", "ipc://"+t.TempDir()+"/notifications", program+".json",
				"--", "--enable-swap")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cancel(); _ = cmd.Wait() }()
			for range 200 {
				c, err := net.Dial("tcp", address)
				if err == nil {
					_ = c.Close()
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			commands, _ := conversation(t, name)
			want := converse(t, name, address, commands)
			w := newWorld(t, func(w *world) { w.noP4 = true })
			for i, got := range converse(t, name, w.thrift, commands) {
				if got != want[i] {
					t.Errorf("%s:\n%s\nBMv2 says\n%s", commands[i], got, want[i])
				}
			}
		})
	}
}

// conversations returns the files in testdata: name to path.
func conversations(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	out := map[string]string{}
	for _, f := range files {
		out[strings.TrimSuffix(filepath.Base(f), ".txt")] = f
	}
	return out
}

// conversation parses a file in testdata. It returns the file's commands, and the texts that each
// answer must contain.
func conversation(t *testing.T, name string) (commands []string, want [][]string) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		if c, ok := strings.CutPrefix(line, "> "); ok {
			commands, want = append(commands, c), append(want, nil)
		} else if len(want) > 0 {
			want[len(want)-1] = append(want[len(want)-1], strings.TrimSpace(line))
		}
	}
	return commands, want
}

// converse passes commands to the CLI's standard input and returns the answer to each command.
func converse(t *testing.T, name, address string, commands []string) []string {
	t.Helper()
	cli := "simple_switch_CLI"
	if strings.HasPrefix(name, "bm_CLI") {
		cli = "bm_CLI"
	}
	binary, err := exec.LookPath(cli)
	if err != nil {
		t.Skipf("%s is not installed: %v", cli, err)
	}
	if out, err := exec.Command(binary, "--help").CombinedOutput(); err != nil {
		t.Skipf("%s does not start here, without any switch: %v\n%s", cli, err, out)
	}
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithTimeout(t.Context(), 120*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "--thrift-port", port)
	cmd.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", cli, err, out)
	}
	answers := strings.Split(string(out), "RuntimeCmd: ")
	if len(answers) < len(commands)+1 {
		t.Fatalf("%d answers to %d commands:\n%s", len(answers)-1, len(commands), out)
	}
	return answers[1 : len(commands)+1]
}
