// The module switch is the P4 switch: its engines in the kernel and in the process, its P4Runtime
// server and the command netcraq-switch. Of the tree it requires only api.
module github.com/netcraq/netcraq/switch

go 1.26.0

tool github.com/cilium/ebpf/cmd/bpf2go

require (
	github.com/apache/thrift v0.25.0
	github.com/cespare/xxhash/v2 v2.3.0
	github.com/cilium/ebpf v0.22.0
	github.com/cockroachdb/datadriven v1.0.3
	github.com/netcraq/netcraq/api v0.1.0
	github.com/p4lang/p4runtime v1.5.0
	github.com/spf13/pflag v1.0.10
	github.com/vishvananda/netlink v1.3.1
	github.com/vishvananda/netns v0.0.5
	golang.org/x/sys v0.49.0
	google.golang.org/genproto/googleapis/rpc v0.0.0-20260817212433-ac3dfec99bb1
	google.golang.org/grpc v1.85.0
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/pmezard/go-difflib v1.0.1-0.20181226105442-5d4384ee4fb2 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/netcraq/netcraq/api => ../api
