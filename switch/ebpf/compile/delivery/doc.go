// Package delivery emits the code that handles a frame after the program has processed it, and the
// code through which frames return. A frame leaves through a port or goes to the controller
// (send.go). It is truncated if the program requested that (truncate.go). A copy may pass the
// program once more (recirculate.go). A program at XDP passes frames that it cannot finish to the
// program at tc (xdp_to_tc.go). Digests and messages go to the process through rings (digest.go,
// message.go), and packet-outs come from the process (packetout.go).
package delivery
