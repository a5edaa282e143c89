package seal

import (
	"strings"
	"testing"

	"github.com/netcraq/netcraq/client/etcd/slotcodec"
)

// TestPlacedReadsCells checks that placement, which knows only the first bytes of a slot,
// recognizes each kind of cell.
func TestPlacedReadsCells(t *testing.T) {
	ring, err := NewRing()
	if err != nil {
		t.Fatal(err)
	}
	c, err := slotcodec.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		cell     slotcodec.Cell
		kind     slotcodec.Kind
		revision int64
	}{
		{slotcodec.Cell{Kind: slotcodec.Clear}, slotcodec.Clear, 0},
		{slotcodec.Cell{Kind: slotcodec.Value, Create: 3, Mod: 300, Version: 2, Value: []byte("x")},
			slotcodec.Value, 300},
		{slotcodec.Cell{Kind: slotcodec.Value, Create: 3, Mod: 1 << 40, Version: 2,
			Value: []byte(strings.Repeat("again and ", 500))}, slotcodec.Value, 1 << 40},
		{slotcodec.Cell{Kind: slotcodec.Absent, Revision: 77}, slotcodec.Absent, 77},
		{slotcodec.Cell{Kind: slotcodec.Guard, Lease: 1 << 50, Number: 9}, slotcodec.Guard, 0},
		{slotcodec.Cell{Kind: slotcodec.Unfit}, slotcodec.Unfit, 0},
	} {
		b, err := c.Encode(x.cell, 1024)
		if err != nil {
			t.Fatalf("%+v: %v", x.cell, err)
		}
		if b, err = ring.Seal(b, Place{Name: "k", ID: 1, Version: 2}); err != nil {
			t.Fatal(err)
		}
		if err := slotcodec.CheckSlot(b, 2, 0); err != nil {
			t.Error(err)
		}
		kind, revision, _, err := slotcodec.ReadSlot(b)
		if err != nil || kind != x.kind || revision != x.revision || kind.String() != x.cell.Kind.String() {
			t.Errorf("%v is read as %v of revision %d, %v", x.cell.Kind, kind, revision, err)
		}
	}
}
