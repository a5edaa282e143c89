// Package node is the Go library for the node API, which the server on the program's own node
// offers.
//
//	c, err := node.Connect(ctx, node.Config{})
//	version, err := c.Put(ctx, "color", []byte("blue"))
//	item, err := c.Get(ctx, "color")
//	lock, err := c.Lock(ctx, "printer", node.TTL(10*time.Second))
//	defer lock.Release(ctx)
//
// Any number of goroutines may use a client, which has one connection to the node's server. The
// client waits for the server at start, and connects again when the connection ends. Then it
// repeats the calls under way. A repeated write keeps its number, by which the server recognizes it
// and executes it only once. If a restarted server does not know the number, the call fails with
// CodeOutcomeUnknown. Watches continue after the last event that they received.
//
// Each call ends with its context, or after Config.Timeout if the context has no deadline. Errors
// are *Error, with a Code. For example, errors.Is(err, &node.Error{Code: node.CodeTimeout}) reports
// whether the call timed out.
package node
