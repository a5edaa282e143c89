// Package progfuzz searches for programs that the engines run differently, or not at all. It has a
// generator of random v1model programs, and tests that compare the engines.
//
// [Generate] generates a program from a seed, in P4_16 for v1model. The tests compile it with p4c
// and fill its tables, groups and sessions at random. They send random frames, most of which follow
// the program's parser ([FrameSource]), through the interpreter, the kernel at tc and at XDP, and
// BMv2. All engines must produce the same frames, registers and counters. If they differ, the tests
// reduce the program to the part that makes them differ ([Program.Reduce]).
//
//	make fuzz-programs PROGRAMS=500 FROM=1   # needs root and p4c-bm2-ss; uses BMv2 if installed
//
// testdata has compiled programs, so that a machine without p4c can run some, too. They are
// programs that failed once, named by their seed.
//
// # What a program must not do
//
// In P4, a read from an invalid header, or from an array beyond its end, is undefined. BMv2 returns
// what an earlier packet left there; the interpreter and the kernel return 0. So most programs
// guard their reads ([Features].Loose is off), and only these programs run on BMv2.
package progfuzz
