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
	if len(os.Args) != 3 {
		log.Fatal("usage: lock-go storage|WRITER HOST:PORT")
	} else if os.Args[1] == "storage" {
		serve(os.Args[2])
	}
	write(os.Args[1], os.Args[2])
}

func serve(address string) {
	var mu sync.Mutex
	var newest uint64
	http.HandleFunc("/{token}", func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		token, err := strconv.ParseUint(r.PathValue("token"), 10, 64)
		if err != nil || token < newest { // a newer holder of the lock has already written
			w.WriteHeader(http.StatusConflict)
		} else {
			newest = token
		}
	})
	log.Fatal(http.ListenAndServe(address, nil))
}

func write(name, storage string) {
	c := must(node.Connect(context.Background(), node.Config{}))
	lock := must(c.Lock(context.Background(), "lock-go", node.TTL(5*time.Second))) // freed 5 s after this process is killed
	for ; lock.Err() == nil; time.Sleep(200 * time.Millisecond) {
		answer := must(http.Post(fmt.Sprintf("http://%s/%d", storage, lock.Token()), "text/plain", nil))
		answer.Body.Close()
		fmt.Printf("%s: token %d: %d\n", name, lock.Token(), answer.StatusCode)
	}
	log.Fatal(lock.Err())
}

func must[T any](result T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return result
}
