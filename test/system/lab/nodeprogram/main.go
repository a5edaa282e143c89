// Command nodeprogram uses the node API. It increments and reads a counter until a given file
// exists, and then prints the results. Tests build it with the client library of this version, and
// with that of the last release.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/netcraq/netcraq/client/node"
)

// result is the output of the program.
type result struct {
	Numbers []int64 // the sums that acknowledged increments returned, in order
	Writes  []int64 // times of the answers to these increments, in Unix nanoseconds
	Reads   []int64 // times of the answers to reads
	Unknown int     // number of increments whose outcome is unknown
	Refused int     // number of increments that were certainly not executed
	Wrong   []string
}

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "give the server's socket, the counter's key, and the file that ends it")
		os.Exit(2)
	}
	socket, key, end := os.Args[1], os.Args[2], os.Args[3]
	c, err := node.Connect(context.Background(), node.Config{Socket: socket, Agent: "nodeprogram"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var r result
	for n := 0; ; n++ {
		if _, err := os.Stat(end); err == nil {
			break
		}
		time.Sleep(4 * time.Millisecond)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		if n%3 == 2 {
			r.read(ctx, c, key)
		} else {
			r.add(ctx, c, key)
		}
		cancel()
	}
	if err := json.NewEncoder(os.Stdout).Encode(&r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (r *result) add(ctx context.Context, c *node.Client, key string) {
	sum, _, err := c.Increment(ctx, key, 1)
	switch {
	case err == nil:
		if last := len(r.Numbers) - 1; last >= 0 && sum <= r.Numbers[last] {
			r.Wrong = append(r.Wrong, fmt.Sprintf("%d was counted after %d", sum, r.Numbers[last]))
		}
		r.Numbers, r.Writes = append(r.Numbers, sum), append(r.Writes, time.Now().UnixNano())
	case node.CodeOf(err) == node.CodeOutcomeUnknown || ctx.Err() != nil:
		r.Unknown++
	default:
		r.Refused++
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *result) read(ctx context.Context, c *node.Client, key string) {
	item, err := c.Get(ctx, key)
	if err != nil {
		return
	}
	r.Reads = append(r.Reads, time.Now().UnixNano())
	var sum int64
	if _, err := fmt.Sscan(string(item.Value), &sum); err != nil && len(r.Numbers) > 0 {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%q was read", item.Value))
	}
	if last := len(r.Numbers) - 1; last >= 0 && sum < r.Numbers[last] {
		r.Wrong = append(r.Wrong, fmt.Sprintf("%d was read after %d was counted", sum, r.Numbers[last]))
	}
}
