// Package tables writes how a packet finds its entry in a table: by a map, an array or a list in
// the order of priority (table.go, priority_list.go), by comparisons where a program is made for
// what a table holds (known.go), and from an entry for a group to that of a member (selector.go). A
// lookup leaves the entry's word, of which package memory says what it is made of. What is done
// with it is in package control.
package tables
