// Package engineselect combines two engines into one switch. The switch is a [target.Device] that
// runs each program on the preferred engine. If that engine does not support the program, the
// switch runs it on the second engine.
//
// The program may change while the switch runs, and the engine may change with it. The ports then
// move to the other engine. The switch finds out whether an engine supports a program before it
// changes the running engine. While ports move, frames are lost for a moment.
//
// It imports bmv2json and target.
package engineselect
