// Package tables emits the code that finds a packet's entry in a table. It uses a map, an array, or
// a list in the order of priority (table.go, priority_list.go). If the program is compiled for a
// table's content, it uses comparisons (known.go). selector.go replaces an entry that names a group
// by a member's. A lookup leaves the entry's word, whose layout is in package memory. Package
// control emits the code that uses the word.
package tables
