// Package inprocess tests controllers with switches that run in the test's own process. So the
// tests need no root, no namespace and no other process.
package inprocess
