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
// A client needs only one address, the chain's service address. The first switch of the chain on
// the path serves the request or forwards it. If this address does not answer, requests go to
// further addresses (the switches' own). Switches always answer from the service address, no matter
// to which of their addresses a request was sent. The client accepts packets only from the service
// addresses (Config.Addresses, Config.Services) and from the addresses that it sent to.
//
// Reads need no session, so the client sends them at once. Each write is sent under a session with
// its own request number, so it is executed once. A session has at most one unanswered write, so
// the number of sessions bounds the concurrent writes. A write that ends without an answer has an
// unknown outcome. A write that was refused also has an unknown outcome (ErrNotFound, ErrDenied,
// ErrBadSession), because the refusal is about one copy of its packet, and networks duplicate
// packets. OpError.OutcomeUnknown reports that. Only two kinds of writes are certainly not
// executed: writes that were not sent, and a failed CompareAndSwap that had a session.
//
// A controller leases sessions (LeasedSessions) to one host, and switches refuse writes that other
// hosts send under these sessions. If the switches accept no session of a lease, the client leases
// other sessions. A CompareAndSwap that was refused for this reason is retried with a new session,
// because it cannot be executed twice; a Put and a Delete end with ErrBadSession. ErrDenied means
// that this host lacks the right to do this with the key. Only an operator can change it.
//
// Package calls decides how often and to which address a request is sent. It has no socket and no
// clock; this package provides both.
package client
