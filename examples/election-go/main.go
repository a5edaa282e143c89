// SPDX-License-Identifier: Apache-2.0

// Command election-go campaigns for leadership, and hands it over when it is interrupted.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/netcraq/netcraq/client/node"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: election-go NAME")
	}
	// Kubernetes stops a container with SIGTERM, and a terminal with SIGINT.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1]); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, name string) error {
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		return err
	}
	// ctx has already ended when this runs, but Close still needs to tell the server.
	defer c.Close(context.WithoutCancel(ctx))
	leader, err := c.Leader(ctx, "election-go")
	if err != nil {
		return err
	}
	if leader.Found {
		fmt.Println(name, "waits, because this one leads:", leader.Value)
	}
	leadership, err := c.Campaign(ctx, "election-go", name)
	if err != nil {
		return err
	}
	fmt.Println(name, "leads")
	select {
	case <-leadership.Lost():
		return errors.Join(errors.New("the leadership is lost"), leadership.Err())
	case <-ctx.Done():
		// Finish the work that only a leader may do here. After Release the next candidate leads at
		// once. Without Release, it waits until the lease has ended, which takes 10 seconds.
		err := leadership.Release(context.WithoutCancel(ctx))
		fmt.Println(name, "has handed over")
		return err
	}
}
