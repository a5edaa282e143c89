package bmv2json

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// A ReadError describes an error and its place in the JSON.
type ReadError struct {
	Path string // for example, "pipelines[0].tables[3].actions"; empty for the whole document
	Msg  string
}

func (e *ReadError) Error() string {
	if e.Path == "" {
		return "BMv2 JSON: " + e.Msg
	}
	return "BMv2 JSON: " + e.Path + ": " + e.Msg
}

// fail aborts reading by a panic, which Parse converts to an error. The panic never leaves the
// package. It is more readable than error returns in about fifty small functions that need no
// cleanup after an error.
func fail(path, format string, args ...any) {
	panic(&ReadError{Path: path, Msg: fmt.Sprintf(format, args...)})
}

// node is a value in the JSON document together with its path.
type node struct {
	v    any
	path string
}

func parseDocument(data []byte) (node, error) {
	dec := json.NewDecoder(bytes.NewReader(escapeControls(data)))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return node{}, &ReadError{Msg: "not JSON: " + err.Error()}
	}
	if _, err := dec.Token(); err != io.EOF {
		return node{}, &ReadError{Msg: "not JSON: more text after the document's end"}
	}
	return node{v: v}, nil
}

// escapeControls escapes the control characters inside strings. JSON forbids them, but older
// versions of p4c wrote the line break of a log_msg unescaped, and BMv2 accepts that.
func escapeControls(data []byte) []byte {
	var out []byte
	done, inside := 0, false // data[:done] has already been copied to out
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inside = !inside
		case c == '\\' && inside:
			i++
		case c < ' ' && inside:
			out = fmt.Appendf(append(out, data[done:i]...), "\\u%04x", c)
			done = i + 1
		}
	}
	if done == 0 {
		return data
	}
	return append(out, data[done:]...)
}

func (n node) kind() string {
	switch n.v.(type) {
	case nil:
		return "null"
	case bool:
		return "a boolean"
	case json.Number:
		return "a number"
	case string:
		return "a string"
	case []any:
		return "an array"
	}
	return "an object"
}

func (n node) isNull() bool { return n.v == nil }

func (n node) object() map[string]any {
	m, ok := n.v.(map[string]any)
	if !ok {
		fail(n.path, "expected an object, found %s", n.kind())
	}
	return m
}

func (n node) isObject() bool {
	_, ok := n.v.(map[string]any)
	return ok
}

func (n node) has(key string) bool {
	_, ok := n.object()[key]
	return ok
}

// opt returns the member with this key, or a null node if there is none.
func (n node) opt(key string) node {
	p := key
	if n.path != "" {
		p = n.path + "." + key
	}
	return node{n.object()[key], p}
}

func (n node) get(key string) node {
	if !n.has(key) {
		fail(n.path, "has no %q", key)
	}
	return n.opt(key)
}

func (n node) list() []node {
	l, ok := n.v.([]any)
	if !ok {
		fail(n.path, "expected an array, found %s", n.kind())
	}
	out := make([]node, len(l))
	for i, v := range l {
		out[i] = node{v, n.path + "[" + strconv.Itoa(i) + "]"}
	}
	return out
}

// optList is like list, but treats a missing array as an empty one.
func (n node) optList(key string) []node {
	c := n.opt(key)
	if c.isNull() {
		return nil
	}
	return c.list()
}

func (n node) tuple(size int) []node {
	l := n.list()
	if len(l) != size {
		fail(n.path, "expected an array of %d, found one of %d", size, len(l))
	}
	return l
}

func (n node) str() string {
	s, ok := n.v.(string)
	if !ok {
		fail(n.path, "expected a string, found %s", n.kind())
	}
	return s
}

func (n node) boolean() bool {
	b, ok := n.v.(bool)
	if !ok {
		fail(n.path, "expected true or false, found %s", n.kind())
	}
	return b
}

func (n node) int() int {
	x, ok := n.v.(json.Number)
	if !ok {
		fail(n.path, "expected an integer, found %s", n.kind())
	}
	i, err := strconv.ParseInt(x.String(), 10, 64)
	if err != nil || i > math.MaxInt32*2+1 || i < math.MinInt32 {
		fail(n.path, "expected an integer of 32 bits, found %s", x)
	}
	return int(i)
}

// nat reads an integer from 0 to limit.
func (n node) nat(limit int) int {
	i := n.int()
	if i < 0 || i > limit {
		fail(n.path, "%d is outside of 0 to %d", i, limit)
	}
	return i
}

// hex reads a hexstr: an optional minus sign, an optional "0x", and hexadecimal digits.
func (n node) hex() *big.Int {
	s := n.str()
	t, neg := strings.CutPrefix(s, "-")
	t = strings.TrimPrefix(t, "0x")
	if t == "" || len(t) > maxWidth/4+2 || strings.ContainsAny(t, "+-_") {
		fail(n.path, "%q is not a hexadecimal number", s)
	}
	v, ok := new(big.Int).SetString(t, 16)
	if !ok {
		fail(n.path, "%q is not a hexadecimal number", s)
	}
	if neg {
		v.Neg(v)
	}
	return v
}

// hexBytes reads a hexstr as a big-endian value of width bits. A negative number becomes its two's
// complement.
func (n node) hexBytes(width int) []byte {
	v := n.hex()
	if v.Sign() < 0 {
		if v.BitLen() > width {
			fail(n.path, "%s does not fit %d bits", n.str(), width)
		}
		v.Add(v, new(big.Int).Lsh(big.NewInt(1), uint(width)))
	}
	if v.BitLen() > width {
		fail(n.path, "%s does not fit %d bits", n.str(), width)
	}
	return v.FillBytes(make([]byte, (width+7)/8))
}

// rawBytes reads a hexstr as exactly size bytes. The bytes need not form a number.
func (n node) rawBytes(size int) []byte {
	s := strings.TrimPrefix(n.str(), "0x")
	if (len(s)+1)/2 != size {
		fail(n.path, "%q has %d bytes, expected %d", n.str(), (len(s)+1)/2, size)
	}
	return n.hexBytes(size * 8)
}
