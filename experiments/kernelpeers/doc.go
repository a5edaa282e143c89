// Package kernelpeers measures other key-value stores in the kernel, for comparison with the
// switch's programs: BMC (a cache in front of memcached, NSDI 2021) and DINT's store (NSDI 2024).
//
// Their sources are not part of this repository. The package compiles a checkout with clang and
// loads the XDP programs. The tables get 16,384 entries, as many as a chain of NetCRAQ has slots,
// instead of millions. So all systems find their entries in the same level of the CPU's cache.
//
// A program runs through BPF_PROG_TEST_RUN. The program turns the request into the answer, so
// [replay] restores the request before each run. The package subtracts the time that replay takes.
package kernelpeers
