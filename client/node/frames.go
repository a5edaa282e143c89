package node

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// appendText appends a string in JSON. The string must be valid UTF-8.
func appendText[T string | []byte](b []byte, s T) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := range len(s) {
		c := s[i]
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		b = append(b, s[from:i]...)
		if c < 0x20 {
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		} else {
			b = append(b, '\\', c)
		}
		from = i + 1
	}
	return append(append(b, s[from:]...), '"')
}

// appendValue appends the JSON member for a value. The value is text if it is UTF-8, otherwise base
// 64.
func appendValue(b, value []byte) []byte {
	if utf8.Valid(value) {
		return appendText(append(b, `,"value":`...), value)
	}
	b = append(b, `,"valueBase64":"`...)
	return append(base64.StdEncoding.AppendEncode(b, value), '"')
}

// appendRequest appends the line of a call's request. The call's data are already encoded.
func appendRequest(b []byte, k *call, millis int, done uint64) []byte {
	b = strconv.AppendUint(append(b, `{"id":`...), k.id, 10)
	b = append(append(append(b, `,"func":"`...), k.fn...), '"')
	if len(k.data) > 0 {
		b = append(append(b, `,"data":`...), k.data...)
	}
	if millis != nodeapi.DefaultTimeoutMillis {
		b = strconv.AppendInt(append(b, `,"timeoutMs":`...), int64(millis), 10)
	}
	if k.once > 0 {
		b = strconv.AppendUint(append(b, `,"once":`...), k.once, 10)
		if done > 1 {
			b = strconv.AppendUint(append(b, `,"done":`...), done, 10)
		}
	}
	return append(b, '}', '\n')
}

// response is an answer of the server. Members that this version does not know are ignored; newer
// servers may send such members.
type response[T any] struct {
	ID    uint64         `json:"id"`
	Data  *T             `json:"data"`
	Error *nodeapi.Error `json:"error"`
	More  bool           `json:"more"`
}

// idOf returns the id of an answer. Servers write the id first, but idOf finds it at any place.
func idOf(line []byte) (uint64, bool) {
	if rest, ok := bytes.CutPrefix(line, []byte(`{"id":`)); ok {
		var id uint64
		for i, c := range rest {
			if c < '0' || c > '9' || i > 15 {
				if i > 0 && c == ',' && rest[len(rest)-1] == '}' {
					return id, true
				}
				break
			}
			id = 10*id + uint64(c-'0')
		}
	}
	var r response[json.RawMessage]
	if err := json.Unmarshal(line, &r); err != nil {
		return 0, false
	}
	return r.ID, true
}
