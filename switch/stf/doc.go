// Package stf reads and runs STF files. STF is the small packet-test language of p4c's own tests. A
// file adds table entries, sends packets, and states the expected packets.
//
// Each line has one command. "#" starts a comment. Names may be quoted. The last components of a
// qualified name are enough if they are not ambiguous.
//
//	add TABLE [PRIORITY] KEY:VALUE ... ACTION(PARAM:VALUE, ...) [= ID]
//	    larger priorities win; a key that is left out matches any value, or 0 if it is exact
//	setdefault TABLE ACTION(PARAM:VALUE, ...)
//	remove all
//	    removes every entry of every table, except for the program's own
//	packet PORT HEX
//	    a frame comes in
//	expect PORT [HEX]
//	    a frame leaves: * is any nibble, $ at the end fixes the length, no HEX is any frame
//	no_packet
//	    expects that no frame left because of the last packet
//	wait
//	    has no effect, because the runner is synchronous
//	check_counter NAME(INDEX) packets|bytes ==|!=|<|<=|>|>= NUMBER
//	    INDEX is the ID of an entry for a direct counter
//	counter_write NAME INDEX BYTES PACKETS
//	register_write NAME INDEX VALUE, register_reset NAME
//	check_register NAME(INDEX) ==|!=|<|<=|>|>= VALUE
//	    (not in p4c's STF)
//	mirroring_add SESSION PORT, mirroring_add_mc SESSION GROUP, mirroring_delete SESSION
//	mc_mgrp_create GROUP, mc_node_create RID PORT ..., mc_node_associate GROUP NODE
//	    nodes are numbered from 0 in the order in which they are made
//	meter_set_rates NAME INDEX RATE:BURST RATE:BURST
//	    the committed and the peak rate: RATE in tokens per microsecond, BURST in tokens
//	meter_array_set_rates NAME RATE:BURST RATE:BURST
//	value_set NAME FIELD,... ...
//	    the members of a parser value set (not in p4c's STF)
//	clock MICROSECONDS
//	    advances the program's clock (not in p4c's STF)
//	counter_read, register_read, meter_get_rates, mirroring_get
//	    are ignored, because they only print something in BMv2's runner
//
// A value is decimal, 0x… or 0b…; in ternary and lpm keys a * stands for a digit that does not
// matter, VALUE/BITS is a prefix, VALUE&&&MASK a mask; in range keys LOW->HIGH.
//
// It imports bmv2json, interp and target.
package stf
