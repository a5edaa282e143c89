package rpc

import (
	"fmt"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// TestItemLine checks that appendItemLine encodes an Item as package json does, and refuses the
// same Items.
func TestItemLine(t *testing.T) {
	texts := []string{"", "a", "\"\\/<>&\x00\x1f\x7f\n\r\t", "\u2028\u2029 \ufffd", "žluťoučký 🐎", "a\xffb", "\xed\xa0\x80"}
	var items []nodeapi.Item
	for n, text := range texts {
		value := text
		items = append(items, nodeapi.Item{Key: text, Found: n%2 == 0, Version: "1.2"},
			nodeapi.Item{Key: "k", Found: true, Value: &value, Version: "65535.281474976710655", Lease: text},
			nodeapi.Item{Key: "k", ValueBase64: []byte(text), Version: text})
	}
	for i := range items {
		want, wantErr := json.Marshal(JSONResponse{ID: uint64(i), Data: &items[i]}, LegacyEmpty)
		got, err := JSONLines{}.Append([]byte("before"), &Response{ID: uint64(i), Data: &items[i]})
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%+v: %v, and json says %v", items[i], err, wantErr)
		}
		if expected := fmt.Sprintf("before%s\n", want); err == nil && string(got) != expected {
			t.Fatalf("%q, not %q", got, expected)
		}
		if err != nil && string(got) != "before" {
			t.Fatalf("%q is left of what failed", got)
		}
	}
}
