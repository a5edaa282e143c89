// Package progfuzz looks for programs that the engines run differently, or not at all: a generator
// of random v1model programs, and what puts them to the test.
//
// [Generate] draws a program from a seed and writes it as P4_16 for v1model. The tests compile it
// with p4c, fill its tables, groups and sessions at random, and give random frames, most of which
// its parser follows ([FrameSource]), to the interpreter, to the kernel at tc and at XDP, and to
// BMv2: frames that leave, registers and counters must be the same. Where something differs the
// program is cut down to what it takes ([Program.Reduce]).
//
//	make fuzz-programs PROGRAMS=500 FROM=1   # needs root and p4c-bm2-ss; BMv2 where it is there
//
// testdata has compiled programs, so that a machine without p4c runs some, too: those that failed
// once, by their seed.
//
// # What a program must not do
//
// P4 leaves undefined what is read of a header that is not valid, or of an array beyond its end.
// BMv2 gives what an earlier packet left there, the interpreter and the kernel give 0. So most
// programs guard what they read ([Features].Loose is off), and only those are given to BMv2.
package progfuzz
