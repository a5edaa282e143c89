// Package rpc has the messages of the node API's socket, [Request] and [Response], and their two
// framings: one JSON object per line ([JSONLines]), and CBOR after a length ([Compact]).
// docs/node-api.md is their specification. This package checks the bytes of a request; package
// server executes it.
package rpc
