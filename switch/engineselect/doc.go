// Package engineselect makes one switch of two: a [target.Device] that runs each program on a
// preferred engine if that can, and on another if not.
//
// Which of the two it is depends on the program, which comes and goes while the switch lives. The
// ports go along: they are the running engine's. What an engine refuses is known before the running
// one is touched; moving the ports takes a moment in which frames are lost.
//
// It imports bmv2json and target.
package engineselect
