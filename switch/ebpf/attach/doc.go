// Package attach attaches programs to network interfaces and detaches them. It uses tc (tcx, or a
// clsact filter on kernels before 6.6) and XDP. At every moment exactly one program processes each
// frame completely. The package also checks the features of devices, prepares the other end of a
// veth pair, and keeps a thread in a network namespace. It knows nothing about P4 or about what the
// programs do. It imports offload.
package attach
