// Package inprocess has the tests of a controller with switches in the test's process: they need no
// root, no namespace and no other process.
package inprocess
