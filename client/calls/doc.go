// Package calls is the NetCRAQ client without sockets, clocks and goroutines. It is a state machine
// that takes events. It returns the packets to send and the calls that have finished.
//
//	        Start, Cancel ──▶ ┌─────────┐ ──▶ Sends        (packets and where to)
//	Receive (a UDP payload) ──▶│ Machine │
//	           Tick (a time) ──▶└─────────┘ ──▶ Completions  (calls that are done)
//
// The same events and the same Config.Seed always give the same actions. So the deterministic
// simulator can run the same code as real clients, and the tests are transcripts that a person can
// read (testdata).
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
// A call is one request that is sent until it is answered. Every transmission is the same packet,
// with the same session, request number and value. So a write is executed once however often it is
// sent, because the head remembers each session's last request and the version that it assigned to
// it.
//
//   - If no answer comes within the retransmission time (50 ms in the NetCRAQ paper), the machine
//     sends the same packet to the next address of the list. After each round through the list the
//     time doubles, up to a limit.
//   - After RETRY, the machine sends the same packet to the same address, after a short pause with
//     jitter. A switch answers RETRY if the chain is frozen, or if an uncommitted write will decide
//     the CAS.
//   - After NOT_SERVING or NO_CHAIN, the machine sends the same packet to the next address at once.
//     When all addresses have given such an answer, it pauses first.
//   - After BAD_SESSION, the machine stops using the session, because the switches do not accept
//     it. A CAS is sent again with another session. If there is no other session, the CAS waits for
//     one, provided that the caller will add sessions (Machine.AwaitSessions). If a copy was
//     executed under the first session, the expected version is gone and the CAS fails. A WRITE
//     fails, because it would be executed twice.
//   - Any other answer ends the call.
//
// The machine accepts answers only from addresses that it sent the request to and from chains'
// service addresses. It counts other packets (Stats.Foreign) and ignores them. The switches control
// who can send from those addresses: they drop replies that a host sends.
//
// # Sessions
//
// A head executes a session's requests in the order of their numbers and drops requests that are
// older than the last one it has executed. So a session has at most one write under way, and a
// client that wants n concurrent writes has n sessions. A READ needs no session: its number only
// finds its reply.
//
// A write that ends without an answer has an unknown outcome: it may have been executed, a copy
// that is still in the network may be executed later, or no copy is ever executed. The same holds
// for a refused write, because the refusal is about one copy, and networks duplicate packets. The
// exception is a CAS that failed with a session, because the head would have recognized a CAS that
// it had executed. The session can still be used, and continues with the next number. It must not
// send other content under the old number. Otherwise a head that has seen the old content would
// take the new content for a retry, and answer it with the old content's version. The next number
// is safe, because a head that has seen it drops late copies of the older request. Even then, the
// older write's outcome may stay unknown for some time; docs/consistency.md says how long.
package calls
