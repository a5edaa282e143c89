// Package known holds a table's content at the time when a program is compiled for it ([Table]).
// [RangesOf] converts a table with one key to ranges of key values, each with the word of its
// entry. The program finds the range with comparisons instead of a map lookup.
//
// Tables rarely change. So a program can be recompiled with comparisons of constants in place of a
// table's map. A tree of comparisons finds the range. It takes four comparisons for ten routes,
// where a longest-prefix trie takes a call and a walk.
//
// But the next packet must see a change, and recompiling takes a while. So each such table has a
// version in the state, which the control plane increments before it changes the map. The code
// contains the version for which it was compiled. If the table's version differs, the packet uses
// the map, like a program without that knowledge.
//
// ESwitch (Molnár et al., SIGCOMM 2016) chooses templates for tables by their content. Morpheus
// (Miano et al., ASPLOS 2022) recompiles programs while they run, and guards them by versions.
package known
