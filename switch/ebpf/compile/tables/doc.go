// Package tables writes how a packet finds its entry in a table: by a map, an array or a list in
// the order of priority (table.go, priority_list.go), by comparisons if a program is compiled for a
// table's content (known.go), and from an entry for a group to that of a member (selector.go). A
// lookup leaves the entry's word, whose layout is in package memory. Package control writes the
// code that uses the word.
package tables
