// The module client has NetCRAQ's clients for Go programs: over UDP, of the node API, of streams.
module github.com/netcraq/netcraq/client

go 1.26.0

require (
	github.com/netcraq/netcraq/api v0.1.0
	golang.org/x/net v0.62.0
	golang.org/x/sys v0.49.0
)

replace github.com/netcraq/netcraq/api => ../api
