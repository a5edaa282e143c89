package eventlog

import (
	"encoding/hex"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/switch/interp"
	"github.com/netcraq/netcraq/switch/nanomsg"
)

// TestEncode checks the layout of messages. It must be the layout of BMv2's packed structures.
// BMv2's tools/nanomsg_client.py unpacks them as "<iQIQQQ" and one or two numbers.
func TestEncode(t *testing.T) {
	name := interp.PacketName{Signature: 0x0102030405060708, ID: 9, Copy: 1}
	header := func(kind string) string {
		return kind + "0200000000000000" + "00000000" + "0807060504030201" + "0900000000000000" +
			"0100000000000000"
	}
	for _, c := range []struct {
		event interp.Event
		want  string
	}{
		{interp.Event{Kind: interp.EventPacketIn, Packet: name, ID: 510}, header("00000000") + "fe010000"},
		{interp.Event{Kind: interp.EventPacketOut, Packet: name, ID: 1}, header("01000000") + "01000000"},
		{interp.Event{Kind: interp.EventCondition, Packet: name, ID: 3, Value: 1},
			header("0b000000") + "03000000" + "01000000"},
		{interp.Event{Kind: interp.EventTableHit, Packet: name, ID: 3, Value: 1<<24 | 7},
			header("0c000000") + "03000000" + "07000001"},
		{interp.Event{Kind: interp.EventTableMiss, Packet: name, ID: 3}, header("0d000000") + "03000000"},
		{interp.Event{Kind: interp.EventActionExecute, Packet: name, ID: 4},
			header("0e000000") + "04000000"},
		{interp.Event{Kind: interp.EventConfigChange}, "e7030000" + "0200000000000000" +
			strings.Repeat("00", 28)},
	} {
		if got := hex.EncodeToString(encode(2, c.event)); got != c.want {
			t.Errorf("%+v is\n    %s\nnot %s", c.event, got, c.want)
		}
	}
}

// TestWanted checks that the log requests events only while somebody listens.
func TestWanted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	p, err := nanomsg.Listen("ipc://"+path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	l := New(2, p)
	if l.Wanted() {
		t.Error("events are wanted, and nobody listens")
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("\x00SP\x00\x00\x21\x00\x00")); err != nil {
		t.Fatal(err)
	}
	until := func(wanted bool) {
		t.Helper()
		for begun := time.Now(); l.Wanted() != wanted; time.Sleep(time.Millisecond) {
			if time.Since(begun) > 20*time.Second {
				t.Fatalf("wanted is %v after 20 s", !wanted)
			}
		}
	}
	until(true)
	l.Event(interp.Event{Kind: interp.EventPacketIn, ID: 5})
	message := make([]byte, 8+1+8+44)
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadFull(c, message); err != nil || message[16] != 44 || message[57] != 5 {
		t.Errorf("what comes is %x: %v", message, err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	until(false)
}
