package rpc

import (
	"encoding/base64"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// appendItemLine appends the JSON line for an answer with an Item that has no Error. The result is
// the same as that of encoding/json, but this function is faster. Most calls are gets, which have
// this answer.
func appendItemLine(b []byte, id uint64, i *nodeapi.Item) ([]byte, error) {
	line := strconv.AppendUint(append(b, `{"id":`...), id, 10)
	var failed error
	text := func(name, value string) {
		quoted, err := jsontext.AppendQuote(append(line, name...), value)
		if line = quoted; failed == nil {
			failed = err
		}
	}
	text(`,"data":{"key":`, i.Key)
	line = strconv.AppendBool(append(line, `,"found":`...), i.Found)
	if i.Value != nil {
		text(`,"value":`, *i.Value)
	}
	if len(i.ValueBase64) > 0 {
		line = base64.StdEncoding.AppendEncode(append(line, `,"valueBase64":"`...), i.ValueBase64)
		line = append(line, '"')
	}
	text(`,"version":`, i.Version)
	if i.Lease != "" {
		text(`,"lease":`, i.Lease)
	}
	if failed != nil {
		return b, failed
	}
	return append(line, "}}\n"...), nil
}
