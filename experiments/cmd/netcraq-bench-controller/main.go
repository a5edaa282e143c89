// netcraq-bench-controller measures the controller that ships against networks of many switches
// (make bench-controller): how long it takes until all chains are ready, what it costs at rest,
// whether leases are kept, and how long a failover, a takeover and a restart take.
//
// The switches are those of package devnet, in one process: the interpreter that ships, with the
// P4Runtime server that ships, on loopback. The store is an etcd, in a process of its own. No
// client sends anything. Each network is measured with one controller, then with a second one that
// stands by.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/netcraq/netcraq/etcd-monitor/embedded"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "netcraq-bench-controller: %v\n", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 2 {
		switch args[0] {
		case "etcd":
			return serveEtcd(args[1])
		case "switches":
			n, err := strconv.Atoi(args[1])
			if err != nil {
				return err
			}
			return serveSwitches(n, os.Stdin, os.Stdout)
		}
	}
	var o options
	f := flag.NewFlagSet("netcraq-bench-controller", flag.ExitOnError)
	f.IntVar(&o.switches, "switches", 10, "switches of the network")
	f.IntVar(&o.chains, "chains", 0, "chains of the network (default a tenth of the switches)")
	f.IntVar(&o.members, "members", 3, "members of each chain: a core switch and leaves, at least 3")
	f.DurationVar(&o.rest, "rest", time.Minute, "time to measure at rest")
	f.IntVar(&o.lease, "lease", 200, "read lease in milliseconds")
	f.StringVar(&o.controller, "controller", "bin/netcraq-controller", "the controller's program")
	f.DurationVar(&o.patience, "patience", 10*time.Minute, "time to wait for each step")
	f.StringVar(&o.until, "until", "restart", "last step to measure: "+strings.Join(stepNames, ", "))
	f.StringVar(&o.log, "log", "", "file for the controllers' log")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return errors.New("it takes no arguments, only flags")
	}
	if !slices.Contains(stepNames, o.until) {
		return fmt.Errorf("-until %s: give one of %s", o.until, strings.Join(stepNames, ", "))
	}
	if o.chains == 0 {
		o.chains = max(1, o.switches/10)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	found, err := measure(ctx, o)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// serveEtcd is an etcd's process. It prints its address, and ends when its input ends.
func serveEtcd(dir string) error {
	s, err := embedded.Start(context.Background(), embedded.Config{DataDir: dir, LogLevel: "error"})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println(s.Endpoint())
	_, _ = os.Stdin.Read(make([]byte, 1))
	return nil
}
