// Package rpc defines the messages of the node API, [Request] and [Response]. It has their two
// framings: one JSON object per line ([JSONLines]), and CBOR after a length ([Compact]).
// docs/node-api.md is their specification. This package only parses and checks requests, and
// package server executes them.
package rpc
