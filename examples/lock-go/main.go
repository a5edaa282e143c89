// SPDX-License-Identifier: Apache-2.0

// Command lock-go writes to a storage service while it holds a lock.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

func main() {
	run := write
	if len(os.Args) != 3 {
		log.Fatal("usage: lock-go storage|WRITER HOST:PORT")
	} else if os.Args[1] == "storage" {
		run = serve
	}
	log.Fatal(run(os.Args[1], os.Args[2]))
}

func serve(_, address string) error {
	var mu sync.Mutex
	var newest uint64
	http.HandleFunc("/{token}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		token, err := strconv.ParseUint(r.PathValue("token"), 10, 64)
		// A smaller token belongs to a writer that had the lock before the newest one.
		if err != nil || token < newest {
			w.WriteHeader(http.StatusConflict)
			return
		}
		newest = token
	})
	return http.ListenAndServe(address, nil)
}

func write(name, storage string) error {
	ctx := context.Background()
	c, err := node.Connect(ctx, node.Config{})
	if err != nil {
		return err
	}
	// If this process is killed, the next one gets the lock after the TTL.
	lock, err := c.Lock(ctx, "lock-go", node.TTL(5*time.Second))
	if err != nil {
		return err
	}
	for ; lock.Err() == nil; time.Sleep(200 * time.Millisecond) {
		answer, err := http.Post(fmt.Sprintf("http://%s/%d", storage, lock.Token()), "text/plain", nil)
		if err != nil {
			return err
		}
		answer.Body.Close()
		fmt.Printf("%s: token %d: %d\n", name, lock.Token(), answer.StatusCode)
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the storage refused the write: %s", answer.Status)
		}
	}
	return lock.Err()
}
