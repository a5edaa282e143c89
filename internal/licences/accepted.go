package main

// accepted are the licences that a dependency may have, by their SPDX identifiers. All of them
// allow that a program under the Apache License 2.0 is linked with the dependency and shipped.
var accepted = map[string]bool{
	"0BSD":          true,
	"Apache-2.0":    true,
	"BSD-2-Clause":  true,
	"BSD-3-Clause":  true,
	"BlueOak-1.0.0": true,
	"CC0-1.0":       true,
	"ISC":           true,
	"MIT":           true,
	"MIT-0":         true,
	"Python-2.0":    true,
	"Unlicense":     true,
	"Zlib":          true,
	"MPL-2.0":       true, // copyleft by file: it asks for the source of changed files only
}
