// Package known says what the control plane has put into a table when a program is made for it
// ([Table]). A table with one key becomes ranges of key values, each with the word of its entry
// ([RangesOf]), which the program finds with comparisons instead of a map.
//
// What tables hold changes seldom: a program that is translated again with it needs no map for the
// table, but comparisons with constants. A tree of comparisons finds the range: four of them for
// ten routes, where a longest-prefix trie takes a call and a walk.
//
// A change must be seen by the next packet, though, and translating takes a while. So each such
// table has a number in the state, which the control plane counts up before it changes the map. The
// code has the number for which it was made. If the table's number is another one by now, the
// packet asks the map, as a program does that was made without knowing anything.
//
// ESwitch (Molnár et al., SIGCOMM 2016) chooses templates for tables by what is in them; Morpheus
// (Miano et al., ASPLOS 2022) makes programs again behind running ones, and guards them by
// versions.
package known
