package testutil

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/switch/bmv2json"
)

// RandomBits returns a random number of n bits. The number is often 0, and often all ones.
func RandomBits(r *rand.Rand, n int) *big.Int {
	ones := new(big.Int).Lsh(big.NewInt(1), uint(n))
	ones.Sub(ones, big.NewInt(1))
	v := new(big.Int)
	for range (n + 63) / 64 {
		v.Lsh(v, 64).Or(v, new(big.Int).SetUint64(r.Uint64()))
	}
	switch r.IntN(6) {
	case 0:
		v.SetInt64(0)
	case 1:
		v.Set(ones)
	}
	return v.And(v, ones)
}

// FieldsProgram returns a program with one metadata header whose fields have the given widths. A
// negative width is a signed field.
func FieldsProgram(t *testing.T, widths []int) *bmv2json.Program {
	t.Helper()
	var fields []string
	for i, w := range widths {
		fields = append(fields, fmt.Sprintf(`["f%d", %d, %t]`, i, max(w, -w), w < 0))
	}
	prog, err := bmv2json.Parse([]byte(`{
		"__meta__": {"version": [2, 23]},
		"header_types": [
			{"name": "standard_metadata", "id": 0, "fields": [["ingress_port", 9, false], ["egress_spec", 9, false], ["egress_port", 9, false],
				["instance_type", 32, false], ["packet_length", 32, false]]},
			{"name": "m_t", "id": 1, "fields": [` + strings.Join(fields, ",") + `]}],
		"headers": [
			{"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": true},
			{"name": "m", "id": 1, "header_type": "m_t", "metadata": true}],
		"parsers": [{"name": "parser", "id": 0, "init_state": null, "parse_states": []}],
		"deparsers": [{"name": "deparser", "id": 0, "order": []}],
		"actions": [],
		"pipelines": [{"name": "ingress", "id": 0, "init_table": null, "tables": []}, {"name": "egress", "id": 1, "init_table": null, "tables": []}]
	}`))
	if err != nil {
		t.Fatal(err)
	}
	return prog
}
