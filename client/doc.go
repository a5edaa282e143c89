// Package client reads and writes the key-value store in the switches, over UDP.
//
//	c, err := client.New(ctx, client.Config{
//		Addresses: []netip.AddrPort{serviceAddress},
//		Profile:   wire.Profile128,
//		Sessions:  client.StaticSessions(calls.Session{ID: 1, NextRequest: 1}),
//	})
//	r, err := c.Get(ctx, key)                                // linearizable
//	r, err = c.CompareAndSwap(ctx, key, r.Version, value)    // executed once, however often it is sent
//
// A client needs one address, the chain's service address: the first switch of the chain on the
// path serves the request or forwards it. If this address does not answer, requests go to further
// addresses (the switches' own). Switches always answer from the service address, no matter to
// which of their addresses a request was sent. The client ignores packets from other addresses than
// the service addresses (Config.Addresses, Config.Services) and those that it sent to.
//
// Reads go out as they come. Each write travels under a session with its own request number, so it
// is executed once. A session has one write under way at a time, so the number of sessions bounds
// the concurrent writes. A write that ends without an answer has an unknown outcome. So has one
// that was refused (ErrNotFound, ErrDenied, ErrBadSession), because the refusal is about one copy
// of its packet, and networks duplicate packets. OpError says so. Only two kinds of writes are
// certainly not executed: those that were not sent, and a CompareAndSwap with a session that
// failed.
//
// A controller leases sessions (LeasedSessions) to one host: switches accept no writes under them
// from other hosts. If they accept no write under any session of a lease, the client leases others.
// A CompareAndSwap that was refused for this reason is retried with those, because it cannot be
// executed twice; a Put and a Delete end with ErrBadSession. ErrDenied is different: this host
// lacks the right to do this with the key, and only an operator can change it.
//
// Package calls decides how a request is sent until it is answered. It has no socket and no clock;
// this package provides them.
package client
