// Package rpc has the messages of the node API's socket: [Request] and [Response], and how they lie
// in the stream of bytes, as a JSON object a line ([JSONLines]) or as CBOR with a length before it
// ([Compact]). docs/node-api.md is their specification. This package checks the bytes of a request;
// package server executes it.
package rpc
