package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/controlplane/controller"
	"github.com/netcraq/netcraq/controlplane/controller/saved"
	"github.com/netcraq/netcraq/controlplane/topology"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/syncbuffer"
)

const example = "../../topology/example.yaml"

func TestCommandLine(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken.yaml")
	if err := os.WriteFile(broken, []byte("switches: []\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	badState := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(badState, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	dir := t.TempDir()
	tokens := " --admin-token " + filepath.Join(dir, "token") + " --admin-read-token " + filepath.Join(dir, "read")
	for _, c := range []struct {
		args string
		code int
		want string // text that stdout or stderr must contain
	}{
		{"--help", 0, "Examples:"},
		{"", exitBadInput, "give the topology file"},
		{"--topology", exitBadInput, "flag needs an argument"},
		{"--speed 9", exitBadInput, "unknown flag"},
		{"net.yaml", exitBadInput, "unknown command"},
		{"--topology /nowhere.yaml", exitBadInput, "no such file"},
		{"--topology " + broken, exitBadInput, "broken.yaml:1: switches: there are no switches"},
		{"--topology " + example + " --log-level loud", exitBadInput, "give debug, info, warn or error"},
		{"--topology " + example + " --state " + badState, exitBadInput, "move it away to start without"},
		{"--topology " + example + " --prometheus http://127.0.0.1:9090", exitBadInput, "Give --etcd, too"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus ftp://x", exitBadInput, "is not the URL of a Prometheus"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --heat-window 1ms", exitBadInput, "it takes a second at least"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --placement-moves 0", exitBadInput, "0 moves a minute"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --gateway-prefix /g", exitBadInput, "must end in a slash"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --gateway-prefix /netcraq/keys/", exitBadInput, "the controllers' own state is under /netcraq/"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --gateway-prefix /netcraq/", exitBadInput, "the controllers' own state is under /netcraq/"},
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --check", 0, "all is well"},
		// This command line uses the former name of a flag.
		{"--topology " + example + " --etcd 127.0.0.1:1 --prometheus http://x --placement-dwell -1s", exitBadInput, "a time below 0"},
		{"--topology " + example + " --check", 0, "4 switches, 4 hosts, 1 chains: all is well"},
		{"--topology " + example + tokens + " --admin " + taken.Addr().String(), exitFailed, "is another controller running?"},
		{"--topology " + example + " --admin unix:///dev/null/c.sock", exitFailed, "--admin chooses another place"},
		{"--topology " + example + tokens + " --admin-group nosuchgroup_", exitFailed, "--admin-group nosuchgroup_"},
	} {
		var out bytes.Buffer
		if code := run(strings.Fields(c.args), &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: exit code %d and\n%s\nwant %d and %q", c.args, code, out.String(), c.code, c.want)
		}
	}
}

// TestSignals: the process serves the API before the switches are connected, says what it waits
// for, reads its file again on SIGHUP, and ends with exit code 0.
func TestSignals(t *testing.T) {
	socket := "unix://" + filepath.Join(t.TempDir(), "c.sock")
	text, err := os.ReadFile(example)
	if err != nil {
		t.Fatal(err)
	}
	compiled, err := filepath.Abs("../../../p4src/compiled")
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.ReplaceAll(text, []byte("../../p4src/compiled"), []byte(compiled))
	file := filepath.Join(t.TempDir(), "net.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out syncbuffer.Buffer
	code := make(chan int, 1)
	go func() { code <- run([]string{"--topology", file, "--admin", socket}, &out, &out) }()
	client := admin.NewClient(socket)
	poll.Until(t, 10*time.Second, "it waits for its switches", func() bool {
		err := client.Ready(context.Background())
		return err != nil && strings.Contains(err.Error(), "waiting for s1, s2, s3, s4 to connect")
	}, out.String)
	says := func(what string) {
		t.Helper()
		poll.Until(t, 10*time.Second, fmt.Sprintf("it says %q", what), func() bool {
			return strings.Contains(out.String(), what)
		}, out.String)
	}
	signal := func(s syscall.Signal) {
		if err := syscall.Kill(os.Getpid(), s); err != nil {
			t.Fatal(err)
		}
	}
	// The test sends SIGHUP after adding a switch to the file. Then it sends SIGHUP with a mistake
	// in the file, and with an impossible change, which have no effect.
	switches := func() string {
		all, err := client.Switches(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, s := range all {
			names = append(names, s.Name)
		}
		return strings.Join(names, " ")
	}
	write := func(old, new string) {
		if err := os.WriteFile(file, bytes.Replace(text, []byte(old), []byte(new), 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s4 := "  - {name: s4, p4runtime: 127.0.0.1:50054, deviceId: 4, address: 10.0.255.4}\n"
	link := "  - [s3:3, s4:2]\n"
	more := bytes.Replace(text, []byte(link), []byte(link+"  - [s5:3, s4:3]\n"), 1)
	text, more = more, text
	write(s4, s4+"  - {name: s5, p4runtime: 127.0.0.1:50055, deviceId: 5, address: 10.0.255.5}\n")
	signal(syscall.SIGHUP)
	says("was read again: 5 switches, 4 hosts, 1 chains")
	if got := switches(); got != "s1 s2 s3 s4 s5" {
		t.Errorf("the switches are %s", got)
	}
	text = more
	write(s4, "")
	signal(syscall.SIGHUP)
	says("there is no switch \"s4\"")
	write("address: 10.0.255.4", "address: 10.0.255.44")
	signal(syscall.SIGHUP)
	says("of switch s4 cannot become 10.0.255.44")
	says("the network stays as it is")
	if got := switches(); got != "s1 s2 s3 s4 s5" {
		t.Errorf("the switches are %s", got)
	}
	signal(syscall.SIGTERM)
	select {
	case c := <-code:
		if c != exitOK || !strings.Contains(out.String(), "stopped: the switches run on") || !strings.Contains(out.String(), "within 200ms") {
			t.Errorf("exit code %d\n%s", c, out.String())
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it did not end")
	}
}

// TestMetricsTellNoKeys: anybody may read /metrics, so no metric has a label for the name of a key.
func TestMetricsTellNoKeys(t *testing.T) {
	top, err := topology.Load(example)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	c, err := controller.New(controller.Options{Topology: top, Store: saved.Memory{}, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:1"}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	var o placementOptions
	o.flags(pflag.NewFlagSet("", pflag.ContinueOnError))
	o.prometheus = "http://127.0.0.1:1"
	p, err := o.config().New(c, etcd, log, clientv3.Cmp{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Registry().Register(p.Metrics()); err != nil {
		t.Fatal(err)
	}
	descriptions := make(chan *prometheus.Desc, 1000)
	c.Registry().Describe(descriptions)
	close(descriptions)
	told := regexp.MustCompile(`variableLabels: \{([^}]*)\}`)
	seen := map[string]bool{}
	for d := range descriptions {
		for label := range strings.SplitSeq(told.FindStringSubmatch(d.String())[1], ",") {
			seen[label] = true
			if !slices.Contains([]string{"", "chain", "switch", "type", "op", "code", "result", "fault", "event",
				"program", "version", "commit", "go"}, label) {
				t.Errorf("%s has the label %q: if its values are not keys, name it here", d, label)
			}
		}
	}
	if !seen["chain"] || !seen["fault"] {
		t.Errorf("there are no metrics: %v", seen)
	}
}
