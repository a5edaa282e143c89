package main

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPortOfP4RuntimeTaken starts a switch when P4Runtime's default port is in use. A switch with
// Thrift runs without P4Runtime, because scripts for simple_switch start several switches. Any
// other switch reports the error.
func TestPortOfP4RuntimeTaken(t *testing.T) {
	if l, err := net.Listen("tcp", defaultAddr); err == nil {
		defer l.Close()
	} // If Listen fails, another process already has the address.
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(free.Addr().String())
	_ = free.Close()

	ctx, cancel := context.WithCancel(t.Context())
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	said := func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	code := make(chan int, 1)
	go func() {
		code <- mainWith(ctx, strings.Fields("--engine interp --no-p4 --thrift-port "+port), log, log)
	}()
	for range 300 {
		if strings.Contains(said(), "ready:") {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	if !strings.Contains(said(), "P4Runtime on no address") || !strings.Contains(said(), "P4Runtime is not served") {
		t.Errorf("the switch says %q", said())
	}
	c, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Errorf("Thrift: %v", err)
	} else {
		_ = c.Close()
	}
	cancel()
	if got := <-code; got != exitOK {
		t.Errorf("it ends with %d: %q", got, said())
	}

	var out strings.Builder
	if got := mainWith(t.Context(), strings.Fields("--engine interp --no-p4"), &out, &out); got != exitFailure ||
		!strings.Contains(out.String(), "in use") {
		t.Errorf("without Thrift it ends with %d: %q", got, &out)
	}
}
