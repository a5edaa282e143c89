// Package inprocess has the tests of a controller before switches that are in the test's process:
// no root, no namespace, no other process.
package inprocess
