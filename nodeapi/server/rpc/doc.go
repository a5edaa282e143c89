// Package rpc has the messages of the node API's socket: [Request] and [Response], and how they lie
// in the stream of bytes, as a JSON object a line ([JSONLines]) or as CBOR with a length before it
// ([Compact]). docs/node-api.md is what they keep to. A request is checked here as far as its bytes
// go; package server does what it asks for.
package rpc
