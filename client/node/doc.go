// Package node is the Go library for the node API, which the server on the program's own node
// offers.
//
//	c, err := node.Connect(ctx, node.Config{})
//	version, err := c.Put(ctx, "color", []byte("blue"))
//	item, err := c.Get(ctx, "color")
//	lock, err := c.Lock(ctx, "printer", node.TTL(10*time.Second))
//	defer lock.Release(ctx)
//
// A client is one connection to the node's server, for any number of goroutines. It waits for the
// server at start, and connects again when the connection ends. Then it repeats what was under way:
// reads as they are, and changes under their old number, by which the server recognizes them, so
// that they are done once. If a restarted server does not recognize one, the call fails with
// CodeOutcomeUnknown. Watches continue where they were.
//
// Each call ends with its context, or after Config.Timeout if the context has no deadline. Errors
// are *Error, with a Code; errors.Is(err, &node.Error{Code: node.CodeTimeout}) asks for one.
package node
