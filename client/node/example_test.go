// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// This example writes a key, and reads it. To have a server on this machine, start netcraq dev.
func Example() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Put(ctx, "color", []byte("blue")); err != nil {
		log.Fatal(err)
	}
	item, err := c.Get(ctx, "color")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s is %s\n", item.Key, item.Value)
}

// This example changes a value that other programs may change at the same time.
func ExampleClient_CAS() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	item, err := c.Get(ctx, "members")
	for swapped := false; err == nil && !swapped; {
		// If another program changed the key first, item has that program's value.
		item, swapped, err = c.CAS(ctx, "members", item.Version, append(item.Value, " ana"...))
	}
	if err != nil {
		log.Fatal(err)
	}
}

// This example moves an amount from one account to another, while other programs may change both.
// The accounts are durable keys, such as the keys in the namespace "durable" of netcraq dev.
func ExampleClient_Transact() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{Namespace: "durable"})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	for {
		accounts, err := c.GetMany(ctx, []string{"alice", "bob"})
		if err != nil {
			log.Fatal(err)
		}
		var t node.Transaction
		for i, amount := range []int{-30, +30} {
			balance, err := strconv.Atoi(string(accounts[i].Value))
			if err != nil || balance+amount < 0 {
				log.Fatalf("%s has %q", accounts[i].Key, accounts[i].Value)
			}
			t.Compare = append(t.Compare, node.HasVersion(accounts[i].Key, accounts[i].Version))
			t.Write = append(t.Write, node.PutKey(accounts[i].Key, []byte(strconv.Itoa(balance+amount))))
		}
		result, err := c.Transact(ctx, t)
		if err != nil {
			log.Fatal(err)
		}
		if result.Done {
			fmt.Println("moved, at version", result.Versions[0])
			return
		}
		// If Done is false, another program has changed an account since this program read it.
	}
}

// This example holds a lock while it writes to a storage that checks the lock's token.
func ExampleClient_Lock() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	lock, err := c.Lock(ctx, "report", node.TTL(5*time.Second), node.Wait(time.Minute))
	if node.CodeOf(err) == node.CodeNotHeld {
		log.Fatal("somebody else has held the lock for a minute")
	}
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	// The storage must refuse a token that is smaller than a token that it has already seen.
	fmt.Println("write with token", lock.Token())
}

// This example acts as the leader until the leadership is lost or the program ends.
func ExampleClient_Campaign() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	leadership, err := c.Campaign(ctx, "writer", "10.0.0.7:80")
	if err != nil {
		log.Fatal(err)
	}
	<-leadership.Lost()
	log.Print("stop leading: ", leadership.Err())
}

// This example follows all keys whose names begin with conf/.
func ExampleClient_Watch() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	prefix := "conf/"
	w, err := c.Watch(ctx, node.WatchConfig{Prefix: &prefix})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	for {
		e, err := w.Next(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s is %q (found: %v)\n", e.Key, e.Value, e.Found)
	}
}

// This example registers an instance of a service, and lists the live instances.
func ExampleClient_RegisterService() {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close(ctx)
	registration, err := c.RegisterService(ctx, "orders", "10.0.0.7:80")
	if err != nil {
		log.Fatal(err)
	}
	defer registration.Deregister(ctx)
	instances, err := c.GetService(ctx, "orders", node.Nearest())
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range instances {
		fmt.Println(i.Instance, i.Address)
	}
}

// The parts of a version are numbers, so 1.10 is newer than 1.9.
func ExampleVersion_Newer() {
	fmt.Println(node.Version("1.10").Newer("1.9"))
	fmt.Println(node.Version("2.1").Newer("1.9"))
	fmt.Println(node.Never.Newer("1.1"))
	// Output:
	// true
	// true
	// false
}

// This example decides what to do after a failed call.
func ExampleCodeOf() {
	err := fmt.Errorf("save the report: %w", &node.Error{Code: node.CodeOutcomeUnknown})
	switch node.CodeOf(err) {
	case node.CodeOutcomeUnknown:
		fmt.Println("read the key before you write again")
	case node.CodeUnavailable:
		fmt.Println("nothing was done, try later")
	}
	fmt.Println(errors.Is(err, &node.Error{Code: node.CodeOutcomeUnknown}))
	// Output:
	// read the key before you write again
	// true
}
