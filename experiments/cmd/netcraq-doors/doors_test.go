package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/etcdtest"
	"github.com/netcraq/netcraq/experiments/coordinators"
	"github.com/netcraq/netcraq/internal/testutil/poll"
	"github.com/netcraq/netcraq/internal/testutil/testport"
)

// open starts the servers, and returns their addresses by name.
func open(t *testing.T, etcd string) map[string]string {
	ctx, stop := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, t.TempDir(), etcd, out) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var where map[string]string
	if err := json.NewDecoder(in).Decode(&where); err != nil {
		t.Fatal(err)
	}
	return where
}

var doorsOf = []struct{ kind, socket string }{
	{"echo", "echo"}, {"json", "node"}, {"compact", "node"}, {"grpc", "grpc-unix"}, {"grpc", "grpc-tcp"}}

func checkReport(t *testing.T, text string) {
	t.Helper()
	line := text[strings.IndexByte(text, '{'):]
	var r report
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if !strings.HasPrefix(text, "ready\n") || r.Calls < 1 || r.P50 <= 0 || r.P99 < r.P50 || r.CPUMicros <= 0 || r.Version == "" {
		t.Fatalf("%q", text)
	}
}

// TestDoors starts each server, and reads the value there with the Go load.
func TestDoors(t *testing.T) {
	where := open(t, "")
	for _, d := range doorsOf {
		t.Run(d.kind+" "+d.socket, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var out bytes.Buffer
			l := load{door: d.kind, address: where[d.socket], seconds: 0.05, warm: 3}
			if err := l.run(ctx, strings.NewReader("\n"), &out); err != nil {
				t.Fatal(err)
			}
			checkReport(t, out.String())
		})
	}
	if err := (load{door: "none"}).run(t.Context(), strings.NewReader("\n"), io.Discard); err == nil {
		t.Error("a door that is none")
	}
}

// TestLoads runs the loads in other languages at the servers that need no further dependencies.
func TestLoads(t *testing.T) {
	where := open(t, "")
	python, err := filepath.Abs("../../../.venv/bin/python")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range []struct{ name, program, script string }{
		{"Node.js", "node", "client.cjs"}, {"Python", python, "client.py"}} {
		for _, kind := range []string{"echo", "json"} {
			t.Run(l.name+" "+kind, func(t *testing.T) {
				if _, err := exec.LookPath(l.program); err != nil {
					t.Skipf("%s is not installed: its load is not tested", l.name)
				}
				socket := where["echo"]
				if kind == "json" {
					socket = where["node"]
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				script := filepath.Join("../../doors", l.script)
				args := []string{script, kind, socket, "0.05", "3"}
				if l.program == "node" {
					args = append(args, t.TempDir()) // the load stores its packages in this folder
				}
				c := exec.CommandContext(ctx, l.program, args...)
				c.Stdin, c.Env = strings.NewReader("\n"), append(os.Environ(), "PYTHONDONTWRITEBYTECODE=1")
				var errs bytes.Buffer
				c.Stderr = &errs
				out, err := c.Output()
				if err != nil {
					t.Fatal(fmt.Errorf("%w: %s", err, errs.String()))
				}
				checkReport(t, string(out))
			})
		}
	}
}

// TestCoordinators runs each job with each available coordinator: the node API over both stores,
// etcd in this process, and Consul if it is installed.
func TestCoordinators(t *testing.T) {
	etcd := etcdtest.Start(t)
	where := open(t, etcd)
	for _, d := range []struct{ name, kind, address string }{
		{"volatile", "node", where["node"]}, {"durable", "node", where["durable"]}, {"etcd", "etcd", etcd},
		{"Consul", "consul", consul(t)}} {
		for _, job := range coordinators.Jobs {
			t.Run(d.name+" "+job, func(t *testing.T) {
				if d.address == "" {
					t.Skip("consul is not installed: its load is not tested")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var out bytes.Buffer
				l := coordinate{kind: d.kind, address: d.address, job: job, seconds: 0.05, warm: 1, least: 2}
				if err := l.run(ctx, strings.NewReader("\n"), &out); err != nil {
					t.Fatal(err)
				}
				checkReport(t, out.String())
			})
		}
	}
	for _, l := range []coordinate{{kind: "none"}, {kind: "node", address: where["node"], job: "none"}} {
		if err := l.run(t.Context(), strings.NewReader("\n"), io.Discard); err == nil {
			t.Errorf("%+v went", l)
		}
	}
}

// consul starts Consul, until the test ends. It returns "" if Consul is not installed.
func consul(t *testing.T) string {
	if _, err := exec.LookPath("consul"); err != nil {
		return ""
	}
	address := testport.Free(t)
	_, port, _ := strings.Cut(address, ":")
	c := exec.Command("consul", "agent", "-dev", "-bind=127.0.0.1", "-log-level=error",
		"-hcl=ports { http = "+port+" https = -1 grpc = -1 grpc_tls = -1 dns = -1 server = "+freePort(t)+
			" serf_lan = "+freePort(t)+" serf_wan = -1 }")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	url := "http://" + address
	poll.Until(t, time.Minute, "Consul has a leader", func() bool {
		r, err := http.Get(url + "/v1/status/leader")
		if err != nil {
			return false
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		return err == nil && r.StatusCode == http.StatusOK && len(text) > 3
	})
	return url
}

func freePort(t *testing.T) string {
	_, port, _ := strings.Cut(testport.Free(t), ":")
	return port
}
