// Package headers writes how headers get from the frame into the PHV and back. The parser extracts
// them state by state (parser.go, value_set.go, varbit.go), actions add, remove and copy them
// (header_ops.go), and the deparser writes those that are valid (deparser.go), into the frame
// itself if possible (direct_access.go). Large headers that a program only moves stay in the frame
// (resting.go).
package headers
