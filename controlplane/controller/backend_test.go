package controller

import (
	"testing"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/keyspace"
)

// TestUndoneAdditionIsNotListed: a key whose addition failed is not listed while it is being
// removed again. It has no version by name yet, so a client that saw it would take the switches'
// versions for versions of the name.
func TestUndoneAdditionIsNotListed(t *testing.T) {
	d, err := keyspace.New([]keyspace.Space{{Chain: 1, Count: 4}}, keyspace.Snapshot{})
	if err != nil {
		t.Fatal(err)
	}
	listed := func() (names []string) {
		c := &Controller{savedKeys: d.Snapshot()}
		for _, k := range c.onRecord("") {
			names = append(names, k.Name)
		}
		return names
	}
	failed, err := d.Add(1, "failed", nil)
	if err != nil {
		t.Fatal(err)
	}
	placed, err := d.Add(1, "placed", nil)
	if err != nil {
		t.Fatal(err)
	}
	d.SetState(placed.ID, keyspace.Placed)
	d.Written(placed.ID, wire.MakeVersion(1, 1), true)
	for _, k := range []keyspace.Key{failed, placed} {
		d.SetState(k.ID, keyspace.Removing)
	}
	// A key that was placed is listed until its removal is complete, because clients can read it
	// until then.
	if names := listed(); len(names) != 1 || names[0] != "placed" {
		t.Errorf("listed are %q", names)
	}
}
