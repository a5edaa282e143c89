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
	rows := []Support{{"Primitives: " + list(run), "instructions; what `log_msg` says goes through a ring, and is lost where that is full"}}
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
		memory.LookupScan.String() + " in the order of priority: time in proportion to its length"},
	{"Const entries, default entries, direct counters", "as for other entries"},
	{"Action profiles, and selectors with groups",
		"as for other entries; a group's member by the hash"},
	{"Meters, indirect and direct", "two token buckets, under a lock of their own"},
	{"Digests", "a ring buffer"},
	{
		"Headers and metadata of fields up to 2,048 bits and more; header unions and stacks " +
			"of them; fields of variable length (varbit)",
		"32,000 bytes in all",
	},
	{"Header stacks: extract, last, constant index, push and pop by constants",
		"code for each element"},
	{"Header stacks indexed while packets pass", "code for each element"},
	{
		"Comparing headers of variable length; comparing headers, and copying unions, that " +
			"are chosen while packets pass",
		"",
	},
	{
		"Parsers: select with masks, look ahead, advance, verify, extraction of fixed and " +
			"variable length",
		"as the interpreter does it",
	},
	{"Parsers that go round without a stack",
		"a frame whose parsing takes more than all headers together and 256 bytes is dropped"},
	{"Parser value sets", "lists of at most 256 members"},
	{"Arithmetic to 64 bits; bitwise operations and constant shifts of any width",
		"instructions"},
	{
		"Sums, products to 1,024 by 1,024 bits, shifts by amounts that the packet says, " +
			"saturation, comparisons: of any width",
		"step by step, in memory",
	},
	{"Divisions of more than 64 bits", ""},
	{"csum16 over headers, fields and constants of any widths, verified and updated",
		"instructions; where a header that is missing moves what is behind it by other than " +
			"whole words, as a hash"},
	{"csum16 over these and the payload", "a loop over chunks of 512 bytes"},
	{"Other algorithms as checksums", "as hashes"},
	{
		"Hashes, of any widths too: crc32, crc16, crcCCITT, crc8, crc64, csum16, xor16, " +
			"xor32, identity, random",
		"over at most 512 bytes; a CRC takes a table of 2 KB",
	},
	{"Hashes, and checksums other than csum16, over the payload", ""},
	{"random", "the kernel's random numbers"},
	{"Multicast, several replicas on a port included",
		"`bpf_clone_redirect` after egress for each"},
	{"Clones, resubmitted and recirculated packets, with field lists",
		"a copy goes through the program again, by the port's tc hook; 4,096 times at most"},
	{
		"truncate, clones that are cut, copies with fewer headers than a copy of the same " +
			"packet before",
		"a frame shorter than 14 bytes and the headers that were added is dropped at tc",
	},
	{"Packet-in and packet-out",
		"a ring buffer; `BPF_PROG_TEST_RUN`, frames of 14 to 16,000 bytes"},
	{"Frames that leave with fewer than 14 bytes", "dropped"},
	{"Frames that get shorter than to where their transport header was",
		"at tc zeros fill them up to there"},
}

func list(names []string) string { return "`" + strings.Join(names, "`, `") + "`" }
