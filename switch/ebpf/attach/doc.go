// Package attach puts programs on network interfaces and takes them off: at tc (tcx, or a filter of
// clsact on kernels before 6.6) and at XDP, so that at every moment each frame is met by one
// program that takes it as a whole. It asks what a device can do, prepares the other end of a veth
// pair, and keeps a thread in a network namespace. It knows nothing about P4, nor of what the
// programs do. It imports offload.
package attach
