// SPDX-License-Identifier: Apache-2.0

// Command etcd-before-after runs the same etcd client against each endpoint that it is given.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: etcd-before-after ENDPOINT...")
	}
	for _, endpoint := range os.Args[1:] {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		if err := measure(ctx, endpoint); err != nil {
			log.Fatalf("%s: %v", endpoint, err)
		}
		cancel()
	}
}

func measure(ctx context.Context, endpoint string) error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Context: ctx})
	if err != nil {
		return err
	}
	defer c.Close()
	put, err := c.Put(ctx, "leader", "alice")
	if err != nil {
		return err
	}
	took := make([]time.Duration, 1000)
	for i := range took {
		began := time.Now()
		got, err := c.Get(ctx, "leader") // the read is linearizable, unless WithSerializable says otherwise
		if err != nil {
			return err
		}
		took[i] = time.Since(began)
		// The gateway answers with etcd's revisions, so code that depends on revisions works, too.
		if len(got.Kvs) != 1 || got.Kvs[0].ModRevision < put.Header.Revision {
			return fmt.Errorf("read %v after the write of revision %d", got.Kvs, put.Header.Revision)
		}
	}
	slices.Sort(took)
	fmt.Printf("%-24s read p50 %v, p99 %v\n", endpoint, took[len(took)/2], took[len(took)*99/100])
	return nil
}
