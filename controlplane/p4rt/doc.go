// Package p4rt is a P4Runtime client for one switch: it connects, wins or loses the arbitration,
// pushes the pipeline, writes and reads the program's objects by their names in its P4Info, and
// exchanges packets with it.
//
// It is general: nothing in it knows NetCRAQ, and it makes no difference which target answers.
// Targets differ in small ways. Comments in the code describe the differences that it allows for;
// in short they are:
//
//   - Byte strings are canonical in what is sent (P4Runtime 1.5, section 9.1.1: the shortest that
//     holds the value) and compared as numbers in what is read, because older targets pad.
//   - simple_switch_grpc (BMv2 with PI) refuses registers with UNIMPLEMENTED, batches other than
//     CONTINUE_ON_ERROR, group ids from 32768 on and the port 0 in a replica's `port`; replicas are
//     therefore sent with the older `egress_port`, which every target takes, and both are
//     understood when read.
//   - It answers a read of one absent multicast group with NOT_FOUND, so groups are always read by
//     wildcard.
//   - It cannot reconcile a program with counters, and stops in the middle of trying (see
//     EnsurePipeline).
//   - It takes the BMv2 JSON as it is for p4_device_config, so that is what is sent.
//   - A default entry is only ever MODIFYed (section 9.1.6), and modifying it without an action
//     restores the program's own.
//   - P4Runtime does not say when a server looks at the election id of a Write. netcraq-switch
//     does so when it executes it, and answers no arbitration while a request of the primary
//     before is being executed. PI looks at it when the call begins, and its arbitration waits for
//     nothing: a call that has passed that check and has not begun to write can still be executed
//     after another controller, or another stream of this one, has become primary. PI also makes a
//     controller with a lower election id primary again when the one with the higher goes, so a
//     stream that was given up must have ended there as well. What is left of that on BMv2 is a
//     moment in its process.
//   - gRPC servers end connections that are pinged more often than every five minutes, so there are
//     no pings: who must know quickly whether a switch lives has to talk to it.
package p4rt
