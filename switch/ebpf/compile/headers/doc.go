// Package headers emits the code that moves headers between the frame and the PHV. The parser
// extracts them state by state (parser.go, value_set.go, varbit.go). Actions add, remove and copy
// headers (header_ops.go). The deparser writes the valid headers (deparser.go), into the frame
// itself if possible (direct_access.go). Large headers that a program only moves stay in the frame
// (resting.go).
package headers
