// Package attach puts programs on network interfaces and takes them off: at tc (tcx, or a filter of
// clsact on kernels before 6.6) and at XDP, so that at every moment exactly one program processes
// each frame completely. It checks what a device can do, prepares the other end of a veth pair, and
// keeps a thread in a network namespace. It knows nothing about P4 or about what the programs do.
// It imports offload.
package attach
