package server

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/nodeapi/server/rpc"
)

// frames is a client's connection that uses the compact framing.
type frames struct {
	t testing.TB
	net.Conn
}

func dialCompact(t testing.TB, path string) *frames {
	t.Helper()
	f := &frames{t, dial(t, path).Conn}
	if _, err := f.Write([]byte(nodeapi.Preface)); err != nil {
		t.Fatal(err)
	}
	return f
}

// send sends a request. Members that are missing at the end of the request are sent as 0.
func (f *frames) send(request ...any) {
	f.t.Helper()
	if n := len(request); n >= 2 && n < 6 {
		request = append(request[:n:n], []any{nil, 0, 0, 0}[n-2:]...)
	}
	b, err := rpc.CborWrite.Marshal(request)
	if err != nil {
		f.t.Fatal(err)
	}
	if _, err := f.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *frames) receive() (out []any) {
	f.t.Helper()
	var head [rpc.LengthBytes]byte
	if _, err := io.ReadFull(f, head[:]); err != nil {
		f.t.Fatal(err)
	}
	b := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(f, b); err != nil {
		f.t.Fatal(err)
	}
	if err := rpc.CborRead.Unmarshal(b, &out); err != nil {
		f.t.Fatal(err)
	}
	return out
}

// TestCompact checks that the compact framing supports the same requests as JSON, with the same
// answers.
func TestCompact(t *testing.T) {
	_, path := start(t, Config{Name: "test"})
	c := dialCompact(t, path)
	type object = map[any]any
	for _, x := range []struct{ request, want []any }{
		{[]any{1, "ping"}, []any{uint64(1), object{}, nil, false}},
		{[]any{2, "get", nodeapi.GetData{Key: nodeapi.Key{Key: "k"}}},
			[]any{uint64(2), object{"key": "k", "found": false, "version": "0.0"}, nil, false}},
		{[]any{3, "put", object{"key": "k", "valueBase64": []byte{1, 255}}},
			[]any{uint64(3), object{"version": "1.1"}, nil, false}},
		{[]any{4, "get", object{"key": "k"}, 1000},
			[]any{uint64(4), object{"key": "k", "found": true, "valueBase64": []byte{1, 255}, "version": "1.1"}, nil, false}},
		{[]any{5, "put", object{"key": "k", "value": "text"}, nil, nil, nil},
			[]any{uint64(5), object{"version": "1.2"}, nil, false}},
		{[]any{6, "get", object{"key": "k"}},
			[]any{uint64(6), object{"key": "k", "found": true, "value": "text", "version": "1.2"}, nil, false}},
		{[]any{7, "fly"}, []any{uint64(7), nil,
			object{"code": "invalid_argument", "message": `there is no function "fly"`}, false}},
		{[]any{8, "hello", object{"client": clientA}}, []any{uint64(8), object{"server": "test", "node": "",
			"namespace": "default", "known": false, "maxValue": uint64(1024), "inFlight": uint64(1024),
			"maxMessage": uint64(262144), "durable": false, "maxList": uint64(256)}, nil, false}},
		{[]any{9, "increment", object{"key": "n"}, 0, 1, 0},
			[]any{uint64(9), object{"number": uint64(1), "value": "1", "version": "1.1"}, nil, false}},
		{[]any{10, "increment", object{"key": "n"}, 0, 1, 0},
			[]any{uint64(10), object{"number": uint64(1), "value": "1", "version": "1.1"}, nil, false}},
		{[]any{11, "watch", object{"keys": []string{"k"}}}, []any{uint64(11), object{"started": true}, nil, true}},
	} {
		c.send(x.request...)
		if d := cmp.Diff(x.want, c.receive()); d != "" {
			t.Errorf("%v: %s", x.request, d)
		}
	}
}

// TestCompactRefused checks that the server refuses messages that are not valid in the compact
// framing.
func TestCompactRefused(t *testing.T) {
	_, path := start(t, Config{})
	c := dialCompact(t, path)
	c.send(1, "ping")
	c.receive()
	type object = map[string]any
	for _, x := range []struct {
		request []any
		id      uint64
		want    string
	}{
		{[]any{}, 0, "this is not a request"},
		{[]any{2, "ping", nil, 0, 0, 0, 0}, 2, "this is not a request"},
		{[]any{"2", "ping"}, 0, "cannot unmarshal"},
		{[]any{2, 3}, 2, "cannot unmarshal"},
		{[]any{-2, "ping"}, 0, "cannot unmarshal"},
		{[]any{uint64(1) << 60, "ping"}, 0, "2^53-1"},
		{[]any{2, "get", object{"key": "k", "kye": 1}}, 2, "unknown field"},
		{[]any{2, "get", object{"KEY": "k"}}, 2, "unknown field"},
		{[]any{2, "get", object{"key": "\xff"}}, 2, "UTF-8"},
		{[]any{2, "get", []any{[]any{[]any{[]any{[]any{[]any{[]any{[]any{[]any{}}}}}}}}}}, 0, "exceeded max nested level"},
		{[]any{2, "put", object{"key": "k", "value": "v", "lease": strings.Repeat("l", 1000)}}, 2, "a lease is named by"},
	} {
		c.send(x.request...)
		got := c.receive()
		failed, _ := got[2].(map[any]any)
		message, _ := failed["message"].(string)
		if got[0] != x.id || got[1] != nil || !strings.Contains(message, x.want) {
			t.Errorf("%v is answered %v, want %d ...%s...", x.request, got, x.id, x.want)
		}
	}
	wrong := dial(t, path)
	wrong.send("\x00NC2")
	wrong.expectPart(`neither JSON nor the preface`)
	wrong.expectEnd()
}

// BenchmarkFraming measures the time and the bytes for parsing a get request and encoding its
// answer.
func BenchmarkFraming(b *testing.B) {
	value := "10.12.0.7:8080"
	answer := &rpc.Response{ID: 1234567, Data: &nodeapi.Item{Key: "orders/instance-17", Found: true, Value: &value, Version: "3.1742"}}
	data := nodeapi.GetData{Key: nodeapi.Key{Key: "orders/instance-17"}}
	raw, _ := json.Marshal(data)
	line, _ := json.Marshal(nodeapi.Request{ID: 1234567, Func: nodeapi.FuncGet, Data: raw})
	array, _ := rpc.CborWrite.Marshal([]any{1234567, nodeapi.FuncGet, data, 0, 0, 0})
	for _, c := range []struct {
		name    string
		framing rpc.Format
		request []byte
	}{
		{"json", rpc.JSONLines{}, append(line, '\n')},
		{"compact", rpc.Compact{}, append(binary.BigEndian.AppendUint32(nil, uint32(len(array))), array...)},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			var buf []byte
			for b.Loop() {
				message, _, _ := c.framing.Next(c.request)
				r, err := c.framing.Request(message)
				if err != nil {
					b.Fatal(err)
				}
				var d nodeapi.GetData
				if err := c.framing.Data(r.Data, &d); err != nil {
					b.Fatal(err)
				}
				if buf, err = c.framing.Append(buf[:0], answer); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(c.request)), "request-bytes")
			b.ReportMetric(float64(len(buf)), "answer-bytes")
		})
	}
}

// BenchmarkGet measures gets over a Unix socket, one after the other, with a store in memory.
func BenchmarkGet(b *testing.B) {
	_, path := start(b, Config{})
	b.Run("json", func(b *testing.B) {
		l := dial(b, path)
		_ = l.SetDeadline(time.Time{})
		b.ReportAllocs()
		for b.Loop() {
			l.send(`{"id":1,"func":"get","data":{"key":"orders/instance-17"}}`)
			l.receive()
		}
	})
	b.Run("compact", func(b *testing.B) {
		c := dialCompact(b, path)
		_ = c.SetDeadline(time.Time{})
		array, _ := rpc.CborWrite.Marshal([]any{1, nodeapi.FuncGet, nodeapi.GetData{Key: nodeapi.Key{Key: "orders/instance-17"}},
			0, 0, 0})
		message := append(binary.BigEndian.AppendUint32(nil, uint32(len(array))), array...)
		answer := make([]byte, 1000)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Write(message); err != nil {
				b.Fatal(err)
			}
			if _, err := c.Read(answer); err != nil {
				b.Fatal(err)
			}
		}
	})
}
