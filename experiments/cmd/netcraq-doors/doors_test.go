package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// open starts the server, and returns where its doors are.
func open(t *testing.T) map[string]string {
	ctx, stop := context.WithCancel(t.Context())
	in, out := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, t.TempDir(), out) }()
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

// TestDoors opens each door, and gets the value there by the load in Go.
func TestDoors(t *testing.T) {
	where := open(t)
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

// TestLoads runs the loads in other languages, by the doors for which they need no more than the
// project has.
func TestLoads(t *testing.T) {
	where := open(t)
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
				c := exec.CommandContext(ctx, l.program, script, kind, socket, "0.05", "3", t.TempDir())
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
