// Package p4rt is a P4Runtime client for one switch. It connects, takes part in the arbitration,
// pushes the pipeline, writes and reads the program's objects by their names in its P4Info, and
// exchanges packets with it.
//
// The package is general: it does not depend on NetCRAQ or on a particular target. Targets differ
// in small ways. The package allows for these differences, which comments in the code describe in
// detail:
//
//   - The client sends byte strings in canonical form (P4Runtime 1.5, section 9.1.1: the shortest
//     that holds the value), and compares received ones as numbers, because older targets pad them.
//   - simple_switch_grpc (BMv2 with PI) refuses registers with UNIMPLEMENTED. It also refuses
//     batches other than CONTINUE_ON_ERROR, group ids from 32768 on, and the port 0 in a replica's
//     `port`. The client therefore sends replicas with the older `egress_port`, which every target
//     accepts, and understands both fields when it reads.
//   - simple_switch_grpc answers a read of one absent multicast group with NOT_FOUND, so groups are
//     always read by wildcard.
//   - simple_switch_grpc cannot reconcile a program with counters, and stops in the middle of
//     trying (see EnsurePipeline).
//   - simple_switch_grpc accepts the unchanged BMv2 JSON as p4_device_config, so the client sends
//     that.
//   - A default entry is only ever MODIFYed (section 9.1.6). Modifying it without an action
//     restores the program's own default.
//   - P4Runtime does not specify when a server checks the election id of a Write. netcraq-switch
//     checks it when it executes the Write, and answers no arbitration while it executes a request
//     of the previous primary. PI checks it when the call begins, and its arbitration waits for
//     nothing. So a call may pass the check at PI, and another controller, or another stream of
//     this one, may then become primary before the call begins to write. PI still executes such a
//     call. PI also makes a controller with a lower election id primary again when the one with the
//     higher id disconnects, so an abandoned stream must have ended at PI as well. The remaining
//     risk on BMv2 is a short moment inside its process.
//   - gRPC servers end connections that are pinged more often than every five minutes, so the
//     client sends no pings. A caller that must know quickly whether a switch is alive has to send
//     it requests.
package p4rt
