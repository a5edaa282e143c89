package cell

import (
	"strings"
	"testing"

	"github.com/netcraq/netcraq/controlplane/placed"
	"github.com/netcraq/netcraq/etcd-monitor/seal"
)

// TestPlacedReadsCells: placement, which knows the first bytes of a slot only, takes each cell for what it is.
func TestPlacedReadsCells(t *testing.T) {
	ring, err := seal.NewRing()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		cell     Cell
		kind     placed.Kind
		revision int64
	}{
		{Cell{Kind: Clear}, placed.Clear, 0},
		{Cell{Kind: Value, Create: 3, Mod: 300, Version: 2, Value: []byte("x")}, placed.Value, 300},
		{Cell{Kind: Value, Create: 3, Mod: 1 << 40, Version: 2, Value: []byte(strings.Repeat("again and ", 500))}, placed.Value, 1 << 40},
		{Cell{Kind: Absent, Revision: 77}, placed.Absent, 77},
		{Cell{Kind: Guard, Lease: 1 << 50, Number: 9}, placed.Guard, 0},
		{Cell{Kind: Unfit}, placed.Unfit, 0},
	} {
		b, err := c.Encode(x.cell, 1024)
		if err != nil {
			t.Fatalf("%+v: %v", x.cell, err)
		}
		if b, err = ring.Seal(b, seal.Place{Name: "k", ID: 1, Version: 2}); err != nil {
			t.Fatal(err)
		}
		if err := placed.CheckSlot(b, 2, placed.Entry{}); err != nil {
			t.Error(err)
		}
		kind, revision, _, err := placed.ReadSlot(b)
		if err != nil || kind != x.kind || revision != x.revision || kind.String() != x.cell.Kind.String() {
			t.Errorf("%v is read as %v of revision %d, %v", x.cell.Kind, kind, revision, err)
		}
	}
}
