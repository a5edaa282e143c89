// Package node is the Go library of the node API: the door of the node on which the program runs.
//
//	c, err := node.Connect(ctx, node.Config{})
//	version, err := c.Put(ctx, "color", []byte("blue"))
//	item, err := c.Get(ctx, "color")
//	lock, err := c.Lock(ctx, "printer", node.TTL(10*time.Second))
//	defer lock.Release(ctx)
//
// A client is one connection to the node's server, for any number of goroutines. It waits for the
// server at start, connects again when the connection ends, and repeats then what was under way:
// reads as they are, what changes something under its old number, by which the server knows it, so
// that it is done once. Where a server that was started again does not know it, the call fails with
// CodeOutcomeUnknown. Watches are taken up where they were.
//
// Each call ends with its context, or after Config.Timeout if the context has no deadline. Errors
// are *Error, with a Code; errors.Is(err, &node.Error{Code: node.CodeTimeout}) asks for one.
package node
