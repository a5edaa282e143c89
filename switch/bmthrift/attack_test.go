package bmthrift

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/bmthrift/idl"
)

// header encodes the beginning of a message that calls a method of the service "standard".
func header(name string) []byte { return message(kindCall, "standard:"+name) }

// message encodes the beginning of a message. The message's sequence number is 1.
func message(kind byte, name string) []byte {
	return join([]byte{0x80, 1, 0, kind}, text(name), []byte{0, 0, 0, 1})
}

// text encodes a string as Thrift does.
func text(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// fieldHead encodes the beginning of a struct's field.
func fieldHead(kind byte, id uint16, rest ...byte) []byte {
	return append([]byte{kind, byte(id >> 8), byte(id)}, rest...)
}

const (
	kindI32, kindI64, kindString, kindStruct, kindList = 8, 10, 11, 12, 15

	kindCall, kindReply, kindException = 1, 2, 3
)

func join(parts ...[]byte) (out []byte) {
	for _, p := range parts {
		out = append(out, p...)
	}
	return out
}

// TestAttackers sends malformed and malicious messages. The server must answer or close each
// connection, must not delay other clients, and must not allocate more memory than the attacker
// sent.
func TestAttackers(t *testing.T) {
	w := newWorld(t)
	good := w.dial(t)
	size := func(n uint32) []byte { return binary.BigEndian.AppendUint32(nil, n) }
	deep := fieldHead(kindStruct, 1)
	for range 500 {
		deep = append(deep, fieldHead(kindStruct, 1)...)
	}
	random := make([]byte, 4096)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	for what, sent := range map[string][]byte{
		"HTTP":                        []byte("GET / HTTP/1.1\r\nHost: switch\r\n\r\n"),
		"TLS":                         {22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3},
		"random":                      random,
		"zeros":                       make([]byte, 1<<16),
		"ones":                        {255, 255, 255, 255, 255, 255, 255, 255},
		"a name of 2 GB":              {0x80, 1, 0, 1, 0x7f, 255, 255, 255, 'x'},
		"a negative name":             {0x80, 1, 0, 1, 255, 255, 255, 255, 'x'},
		"an unversioned name of 2 GB": {0x7f, 255, 255, 255},
		"no service":                  join([]byte{0x80, 1, 0, 1}, size(4), []byte("ping"), size(1), []byte{0}),
		"another service": join([]byte{0x80, 1, 0, 1}, size(9), []byte("root:ping"), size(1),
			[]byte{0}),
		"a string of 2 GB": join(header("bm_load_new_config"),
			fieldHead(kindString, 1, 0x7f, 255, 255, 255), []byte("{")),
		"a string of 15 MB and its beginning": join(header("bm_load_new_config"),
			fieldHead(kindString, 1), size(15<<20), []byte("{")),
		"a list of 2 G fields": join(header("bm_mt_add_entry"),
			fieldHead(kindList, 3, kindStruct, 0x7f, 255, 255, 255)),
		"a list of 16 M fields": join(header("bm_mt_add_entry"),
			fieldHead(kindList, 3, kindStruct, 1, 0, 0, 0)),
		"a list of -1 fields": join(header("bm_mt_add_entry"),
			fieldHead(kindList, 3, kindStruct, 255, 255, 255, 255)),
		"structs in structs": join(header("bm_swap_configs"), deep),
		"another type": join(header("bm_mt_get_num_entries"),
			fieldHead(kindString, 1), size(1), []byte("x"), []byte{0}),
		"an unknown type": join(header("bm_mt_get_num_entries"), fieldHead(99, 1, 1, 2, 3, 4)),
		"an answer":       join([]byte{0x80, 1, 0, 2}, size(11), []byte("standard:x0"), size(1)),
	} {
		t.Run(what, func(t *testing.T) {
			before := allocated()
			c, err := net.Dial("tcp", w.thrift)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(30 * time.Second))
			_, _ = c.Write(sent)
			_ = c.(*net.TCPConn).CloseWrite()
			_, err = io.Copy(io.Discard, c)
			if e, ok := err.(net.Error); ok && e.Timeout() {
				t.Error("the connection is open, and nothing comes")
			}
			if took := int64(allocated()) - int64(before); took > 8<<20 {
				t.Errorf("%d bytes were allocated for the %d that were sent", took, len(sent))
			}
			if err := good.call("bm_mt_get_num_entries", 0, "MyIngress.forward"); err != nil {
				t.Errorf("another client: %v", err)
			}
		})
	}
}

// allocated returns how many bytes the process has allocated since it started.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// TestManyConnections opens more connections than the limit. The server must close silent
// connections and keep a connection that a client has just used.
func TestManyConnections(t *testing.T) {
	w := newWorld(t)
	for range 3 {
		var open []net.Conn
		for range 100 {
			c, err := net.Dial("tcp", w.thrift)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
			// the beginning of a message that is never completed
			_, _ = c.Write(header("bm_swap_configs")[:10])
		}
		c := w.dial(t)
		if err := c.call("bm_mt_get_entries", 0, "MyIngress.fixed"); err != nil {
			t.Fatal(err)
		}
		for _, c := range open {
			_ = c.Close()
		}
		if err := c.call("bm_mt_get_entries", 0, "MyIngress.fixed"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnreadAnswers checks that a client that does not read its answers does not block other
// clients.
func TestUnreadAnswers(t *testing.T) {
	w := newWorld(t)
	c, err := net.Dial("tcp", w.thrift)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const array = "MyIngress.objects" // reading this array gives an answer of half a megabyte
	call := join(header("bm_register_read_all"), fieldHead(kindI32, 1, 0, 0, 0, 0),
		fieldHead(kindString, 2, 0, 0, 0, byte(len(array))), []byte(array), []byte{0})
	_ = c.SetWriteDeadline(time.Now().Add(2 * time.Second))
	for range 64 {
		if _, err := c.Write(call); err != nil {
			break // the server has stopped reading requests
		}
	}
	good := w.dial(t)
	began := time.Now()
	if err := good.call("bm_register_write", 0, "MyIngress.narrow", 0, 1); err != nil {
		t.Fatal(err)
	}
	if err := good.call("bm_mt_add_entry", 0, "MyIngress.forward",
		idl.MatchKey{exact(mac...)}, "MyIngress.drop", nil, nil); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > 15*time.Second {
		t.Errorf("another client waited %v", took)
	}
}

// TestReplies makes calls on one connection and compares the bytes of each answer with the expected
// bytes.
func TestReplies(t *testing.T) {
	w := newWorld(t)
	c, err := net.Dial("tcp", w.thrift)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	table, stop := fieldHead(kindString, 2, text("MyIngress.forward")...), []byte{0}
	failed := func(name, why string, code byte) []byte {
		return join(message(kindException, name), fieldHead(kindString, 1, text(why)...),
			fieldHead(kindI32, 2, 0, 0, 0, code), stop)
	}
	for _, x := range []struct {
		what       string
		sent, want []byte
	}{
		{"unknown fields, and one of another type than the argument", join(
			header("bm_mt_get_num_entries"), fieldHead(kindStruct, 9, 2, 0, 1, 1, 0),
			fieldHead(kindString, 1, text("x")...), table, stop),
			join(message(kindReply, "bm_mt_get_num_entries"), fieldHead(kindI64, 0, 0, 0, 0, 0, 0,
				0, 0, 0),
				stop)},
		{"no such call", join(header("bm_nothing"), table, stop),
			failed("bm_nothing", "Unknown function bm_nothing", 1)},
		{"no table", join(header("bm_mt_get_num_entries"), stop), join(
			message(kindReply, "bm_mt_get_num_entries"),
			fieldHead(kindStruct, 1, fieldHead(kindI32, 1, 0, 0, 0, 7)...), stop, stop)},
		{"no struct", join(message(kindCall, "simple_switch:mirroring_session_add"), stop),
			join(message(kindReply, "mirroring_session_add"), stop)},
		{"a list", join(header("bm_register_read_all"),
			fieldHead(kindString, 2, text("MyIngress.narrow")...), stop), join(
			message(kindReply, "bm_register_read_all"), fieldHead(kindList, 0, kindI64, 0, 0, 0, 8),
			make([]byte, 8*8), stop)},
		{"an error without a code", join(header("bm_serialize_state"), stop),
			failed("bm_serialize_state", "Internal error processing bm_serialize_state: "+
				"this switch has no form in which it writes its state down: not supported", 6)},
		{"a list of other elements, which ends the connection", join(header("bm_mt_add_entry"),
			fieldHead(kindList, 5, kindI32, 0, 0, 0, 1), []byte{0, 0, 0, 0}, stop),
			failed("bm_mt_add_entry", "a list or map has elements of type I32, not STRING", 7)},
	} {
		if _, err := c.Write(x.sent); err != nil {
			t.Fatal(x.what, err)
		}
		got := make([]byte, len(x.want))
		if n, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, x.want) {
			t.Fatalf("%s: %q, %v\nnot %q", x.what, got[:n], err, x.want)
		}
	}
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after the last the connection is open: %d bytes, %v", n, err)
	}
}
