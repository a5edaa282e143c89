package main

// accepted lists the permitted licences of a dependency, by their SPDX identifiers. Each licence
// permits shipping a program under the Apache License 2.0 that is linked with the dependency.
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
	"MPL-2.0":       true, // this licence requires only the source of changed files (file-level copyleft)
}
