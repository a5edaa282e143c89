// Package engineselect combines two engines into one switch: a [target.Device] that runs each
// program on the preferred engine if that supports the program, and otherwise on the other one.
//
// The program may change while the switch runs, and the engine with it. The ports then move to the
// other engine. Whether an engine refuses a program is known before the running engine is changed.
// Moving the ports takes a moment in which frames are lost.
//
// It imports bmv2json and target.
package engineselect
