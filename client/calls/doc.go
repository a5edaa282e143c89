// Package calls is the NetCRAQ client without sockets, clocks and goroutines: a machine that takes
// events and says what to send and which calls have finished.
//
//	        Start, Cancel ──▶ ┌─────────┐ ──▶ Sends        (packets and where to)
//	Receive (a UDP payload) ──▶│ Machine │
//	           Tick (a time) ──▶└─────────┘ ──▶ Completions  (calls that are done)
//
// The same events always give the same actions (the only chance in it comes from Config.Seed), so
// the deterministic simulator drives the very code that real clients run, and its tests are
// transcripts that a person can read (testdata).
//
// # The way of a call
//
//	client.Put ──▶ submit ──▶ Machine.Start ──▶ prepare ──▶ findSession ──▶ sendNumbered ──▶ transmit
//	                                            (checks,     (a write: one    (session and     (again and again,
//	                                             lays out     that is free,    number are       until it is
//	                                             the packet)  or waits)        filled in)       answered)
//
// # What a call does
//
// A call is one request that is sent until it is answered. Every transmission is the same packet:
// same session, same request number, same value. So a write is executed once however often it is
// sent, because the head remembers each session's last request and the version that it assigned to
// it.
//
//   - No answer within the retransmission time (the paper's 50 ms): the same packet to the next
//     address of the list. After each round through the list the time doubles, up to a limit.
//   - RETRY (frozen chain, or CAS that a write on its way decides), after a short pause with
//     jitter: the same packet to the same address.
//   - NOT_SERVING, NO_CHAIN: the same packet to the next address at once; when all addresses have
//     answered so, after a pause.
//   - BAD_SESSION: the switches do not accept the session, and the machine stops using it. A CAS
//     is sent again with another session; if there is none, it waits for one, provided that the
//     caller gets new ones (Machine.AwaitSessions). If a copy was executed under the first session,
//     the expected version is gone and the CAS fails. A WRITE fails, because it would be executed
//     twice.
//   - Anything else ends the call.
//
// Only a packet from an address that was asked, or from a chain's service address, is an answer.
// Others are only counted (Stats.Foreign). The switches control who can send from those addresses:
// they drop replies that a host sends.
//
// # Sessions
//
// A head executes a session's requests in the order of their numbers and drops those older than the
// last it knows. So a session has at most one write on its way, and a client that wants n
// concurrent writes has n sessions. A READ needs no session: its number only finds its reply.
//
// A write that ends without an answer has an unknown outcome: it may have been executed, a copy
// that is still on its way may be executed later, or it never is. The same holds for a refused
// write, because the refusal is about one copy, and networks duplicate packets. (The exception is a
// CAS that failed with a session: the head would have recognized an executed one.) The session is
// still good, and continues with the next number. It must not send other content under the old
// number: a head that has seen the old content would answer the new one with the old one's version,
// as a retry. The next number is safe, because a head that knows it drops late copies of the older
// request. That does not end the unknown outcome everywhere at once; docs/consistency.md says when
// it ends.
package calls
