// Package engineselect makes one switch of two: a [target.Device] that runs each program on a
// preferred engine if that can, and on another if not.
//
// Which of the two it is depends on the program, which may change while the switch runs. The ports
// move with it to the running engine. Whether an engine refuses a program is known before the
// running one is touched; moving the ports takes a moment in which frames are lost.
//
// It imports bmv2json and target.
package engineselect
