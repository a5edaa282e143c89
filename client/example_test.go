// SPDX-License-Identifier: Apache-2.0

package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client"
	"github.com/netcraq/netcraq/client/refchain"
)

// Write a key, read it, and change it if no other client has changed it. The chain of this example
// is in the same process. For a real chain, package fromadmin gets the addresses, keys and
// sessions.
func Example() {
	ctx := context.Background()
	chain, err := refchain.New(refchain.Config{ChainID: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer chain.Close()
	key := wire.MakeKey(1, 7)
	chain.Place(key)

	c, err := client.New(ctx, client.Config{
		Addresses: chain.Addresses(),
		Sessions:  client.StaticSessions(client.Session{ID: 1, NextRequest: 1}),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Put(ctx, key, []byte("blue")); err != nil {
		log.Fatal(err)
	}
	read, err := c.Get(ctx, key)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("read %s\n", read.Value)
	if _, err := c.CompareAndSwap(ctx, key, read.Version, []byte("red")); err != nil {
		log.Fatal(err)
	}
	_, err = c.CompareAndSwap(ctx, key, read.Version, []byte("green"))
	fmt.Println("the second swap fails:", errors.Is(err, client.ErrCASFailed))
	// Output:
	// read blue
	// the second swap fails: true
}
