// Package delivery writes what happens to a frame when the program is done with it, and how frames
// come back. A frame leaves by a port or goes to the controller (send.go), truncated if that was
// requested (truncate.go). A copy may go through the program once more (recirculate.go). A program
// at XDP hands over to the one at tc what it cannot finish (xdp_to_tc.go). Digests and messages go
// through rings to the process (digest.go, message.go), and packet-outs come from it
// (packetout.go).
package delivery
