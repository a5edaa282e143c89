package compile

import (
	"maps"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/switch/ebpf/compile/analysis"
	"github.com/netcraq/netcraq/switch/ebpf/compile/memory"
)

// Support describes whether this engine supports a construct of v1model.
type Support struct {
	Construct string
	How       string // how the engine implements the construct; "" if the engine refuses it
}

// allPrimitives are the primitives that p4c writes for v1model.
var allPrimitives = []string{
	"assign", "assign_VL", "assign_header", "assign_union", "assign_header_stack",
	"assign_union_stack", "push", "pop", "_jump", "_jump_if_zero", "exit", "assume", "assert",
	"log_msg", "mark_to_drop", "add_header", "remove_header", "clone_ingress_pkt_to_egress",
	"clone_egress_pkt_to_egress", "resubmit", "recirculate", "generate_digest",
	"modify_field_with_hash_based_offset", "modify_field_rng_uniform", "truncate", "execute_meter",
	"count", "register_read", "register_write",
}

// Supported lists the constructs that the engine supports and those that it refuses. The primitives
// come from the translator's own table, and the refused constructs from its refusals.
func Supported() []Support {
	var run, refused []string
	for _, p := range allPrimitives {
		if _, ok := analysis.Primitives[p]; ok {
			run = append(run, p)
		} else {
			refused = append(refused, p)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(analysis.Primitives)) {
		if !slices.Contains(allPrimitives, p) {
			run = append(run, p)
		}
	}
	rows := []Support{{"Primitives: " + list(run), "instructions. Messages of `log_msg` go " +
		"through a ring buffer; if it is full, further messages are lost"}}
	if len(refused) > 0 {
		rows = append(rows, Support{"Primitives: " + list(refused), ""})
	}
	return append(rows, supported...)
}

// supported lists the supported constructs other than primitives.
var supported = []Support{
	{"Exact keys of at most 12 bits in all", memory.LookupArray.String()},
	{"Exact keys", memory.LookupHash.String()},
	{"One prefix, with or without exact keys", memory.LookupTrie.String()},
	{"Ternary, optional and range keys, with or without a prefix",
		memory.LookupScan.String() + " in the order of priority. A look-up takes time in " +
			"proportion to the list's length"},
	{"Const entries, default entries, direct counters", "as for other entries"},
	{"Action profiles, and selectors with groups",
		"as for other entries. A hash chooses the group's member"},
	{"Meters, indirect and direct", "two token buckets, which share a separate lock"},
	{"Digests", "a ring buffer"},
	{
		"Headers and metadata with fields of 2,048 bits and more; header unions and stacks " +
			"of unions; fields of variable length (varbit)",
		"all headers and metadata together may have 32,000 bytes",
	},
	{"Header stacks: extract, last, constant index, push and pop by constants",
		"code for each element"},
	{"Header stacks with an index that the packet determines", "code for each element"},
	{
		"Comparing headers of variable length; comparing headers and copying unions whose " +
			"index the packet determines",
		"",
	},
	{
		"Parsers: select with masks, look ahead, advance, verify, extraction of fixed and " +
			"variable length",
		"the same behaviour as in the interpreter",
	},
	{"Parsers that loop without a header stack",
		"the program drops a frame if parsing it needs more bytes than all headers together " +
			"plus 256"},
	{"Parser value sets", "lists of at most 256 members"},
	{"Arithmetic on up to 64 bits; bitwise operations and constant shifts of any width",
		"instructions"},
	{
		"Operations of any width: sums, shifts by amounts that the packet determines, " +
			"saturation, comparisons. Products of up to 1,024 by 1,024 bits",
		"computed word by word, in memory",
	},
	{"Divisions of more than 64 bits", ""},
	{"csum16 over headers, fields and constants of any widths, verified and updated",
		"instructions. If a missing header shifts the following data by a number of bytes " +
			"that is not a whole number of words, the checksum is computed as a hash"},
	{"csum16 over headers, fields, constants and the payload",
		"a loop over chunks of 512 bytes"},
	{"Other algorithms as checksums", "computed as hashes"},
	{
		"Hashes of any width: crc32, crc16, crcCCITT, crc8, crc64, csum16, xor16, xor32, " +
			"identity, random",
		"computed over at most 512 bytes. A CRC needs a table of 2 KB",
	},
	{"Hashes, and checksums other than csum16, over the payload", ""},
	{"random", "the kernel's random numbers"},
	{"Multicast, also with several replicas on one port",
		"`bpf_clone_redirect` after egress for each copy"},
	{"Clones, resubmitted and recirculated packets, with field lists",
		"the port's tc hook sends a copy through the program again, at most 4,096 times"},
	{
		"truncate, truncated clones, copies with fewer headers than an earlier copy of the " +
			"same packet",
		"at tc, a frame is dropped if it is shorter than 14 bytes plus the added headers",
	},
	{"Packet-in and packet-out",
		"a ring buffer for packet-in, and `BPF_PROG_TEST_RUN` for packet-out. Frames may have " +
			"14 to 16,000 bytes"},
	{"Frames that leave with fewer than 14 bytes", "dropped"},
	{"Frames that become so short that they end before the original transport header",
		"at tc, zeros fill the frame up to that place"},
}

func list(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
