// Package progfuzz searches for P4 programs that the switch's engines execute differently, or that
// some engine cannot execute. It has a generator of random v1model programs, and tests that compare
// the engines.
//
// [Generate] generates a program from a seed, in P4_16 for v1model. The tests compile it with p4c
// and fill its tables, groups and sessions at random. They send random frames, most of which follow
// the program's parser ([FrameSource]), through the interpreter, the kernel at tc and at XDP, and
// BMv2. All engines must produce the same frames, registers and counters. If they differ, the tests
// reduce the program to the part that makes them differ ([Program.Reduce]).
//
//	make fuzz-programs PROGRAMS=500 FROM=1   # needs root and p4c-bm2-ss; uses BMv2 if installed
//
// The folder testdata has compiled programs for machines without p4c. They are programs that once
// failed. Their names are their seeds.
//
// # What a program must not do
//
// In P4, a read from an invalid header, or from an array beyond its end, is undefined. BMv2 returns
// data of an earlier packet; the interpreter and the kernel return 0. So most programs guard their
// reads ([Features].Loose is off). Only such programs run on BMv2.
package progfuzz
