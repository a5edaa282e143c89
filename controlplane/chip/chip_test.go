package chip

import (
	"reflect"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		version wire.Version
		chip    uint32
	}{
		{0, 0},
		{wire.MakeVersion(5, 7), 5<<24 | 7},
		{wire.MakeVersion(MaxEpoch, MaxSequence), 0xFFFFFFFE},
	} {
		v, err := Version(c.version)
		if err != nil || v != c.chip {
			t.Errorf("version %v is %#x on a chip (%v), want %#x", c.version, v, err, c.chip)
		}
		if back := WireVersion(c.chip); back != c.version {
			t.Errorf("a chip's version %#x is %v, want %v", c.chip, back, c.version)
		}
	}
	for _, v := range []wire.Version{wire.MakeVersion(MaxEpoch+1, 1), wire.MakeVersion(1, MaxSequence+1)} {
		if got, err := Version(v); err == nil {
			t.Errorf("version %v is %#x on a chip, want an error", v, got)
		}
	}
}

func TestVersionKeepsOrder(t *testing.T) {
	versions := []wire.Version{0, wire.MakeVersion(1, 1), wire.MakeVersion(1, MaxSequence), wire.MakeVersion(2, 1)}
	for i, v := range versions[1:] {
		before, err1 := Version(versions[i])
		after, err2 := Version(v)
		if err1 != nil || err2 != nil || before >= after {
			t.Errorf("%v is %#x and %v is %#x (%v, %v): not in order", versions[i], before, v, after, err1, err2)
		}
	}
}

func TestEntry(t *testing.T) {
	port := p4rt.Match{"ingress_port": p4rt.Exact(uint64(3))}
	chain := p4rt.Match{"chain": p4rt.Exact(uint64(1))}
	for name, c := range map[string]struct{ in, out p4rt.Entry }{
		"a host with an address": {
			p4rt.Entry{Table: "port_trust", Match: port, Action: "host_port", Params: p4rt.Params{"principal": uint64(7), "address": uint64(1)}},
			p4rt.Entry{Table: "port_trust", Match: port, Action: "host_port", Params: p4rt.Params{"principal": uint64(7), "address": uint64(1)}},
		},
		"a host of any address": {
			p4rt.Entry{Table: "port_trust", Match: port, Action: "open_host_port", Params: p4rt.Params{"principal": uint64(7), "address": uint64(0)}},
			p4rt.Entry{Table: "port_trust", Match: port, Action: "open_host_port_of_any_address",
				Params: p4rt.Params{"principal": uint64(7)}},
		},
		"a leased session": {
			p4rt.Entry{Table: "session_lease", Match: p4rt.Match{"session": p4rt.Exact(uint64(70))}, Action: "leased_to",
				Params: p4rt.Params{"port": uint64(3)}},
			p4rt.Entry{Table: "session_lease", Match: p4rt.Match{"session": p4rt.Exact(uint64(70)), "port": p4rt.Exact(uint64(3))}, Action: "leased_to"},
		},
		"a chain's versions": {
			p4rt.Entry{Table: "chain_config", Match: chain, Action: "set_chain", Params: p4rt.Params{"epoch": uint64(5)}},
			p4rt.Entry{Table: "chain_config", Match: chain, Action: "set_chain",
				Params: p4rt.Params{"epoch": uint64(5), "fresh": uint64(0x05000001), "last": uint64(0x05FFFFFE)}},
		},
		"a closed key": {
			p4rt.Entry{Table: "key_index", Action: "set_slot", Params: p4rt.Params{"slot": uint64(9), "realm": uint64(0x8003)}},
			p4rt.Entry{Table: "key_index", Action: "set_slot", Params: p4rt.Params{"slot": uint64(9), "realm": uint64(3), "closed": uint64(1)}},
		},
		"a route, as it is": {
			p4rt.Entry{Table: "ipv4_lpm", Action: "to_controller"},
			p4rt.Entry{Table: "ipv4_lpm", Action: "to_controller"},
		},
	} {
		before := c.in.Params["realm"]
		got, err := Entry(c.in)
		if err != nil || !reflect.DeepEqual(got, c.out) {
			t.Errorf("%s: got %+v (%v), want %+v", name, got, err, c.out)
		}
		if c.in.Params["realm"] != before {
			t.Errorf("%s: Entry changed its argument", name)
		}
	}
}

func TestEntryRefuses(t *testing.T) {
	for want, e := range map[string]p4rt.Entry{
		"epoch 256 is beyond": {Table: "chain_config", Action: "set_chain", Params: p4rt.Params{"epoch": uint64(256)}},
		"parameter epoch":     {Table: "chain_config", Action: "set_chain"},
		"parameter realm":     {Table: "key_index", Action: "set_slot"},
		"parameter port":      {Table: "session_lease", Match: p4rt.Match{"session": p4rt.Exact(uint64(1))}, Action: "leased_to"},
		"match on session":    {Table: "session_lease", Action: "leased_to"},
	} {
		if got, err := Entry(e); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %+v and the error %v, want one that says %q", e.Action, got, err, want)
		}
	}
}
