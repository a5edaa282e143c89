// The module api is what NetCRAQ's programs agree on: the wire format, the admin API, the node API,
// streams, and the clocks that leases are counted by. It requires only the standard library.
module github.com/netcraq/netcraq/api

go 1.26.0
