// Package chip translates between the control plane and the program of a switch chip
// (p4src/netcraq_tna.p4). That program differs from the v1model program in a few parameters, in the
// width of a version, and in the unit of its clock. docs/reference/hardware.md lists the
// differences.
package chip

import (
	"fmt"
	"maps"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/controlplane/p4rt"
)

// ClockUnit is the unit of a chip's clock, and of the times in LEASE and LEASE_REPLY. The clock has
// 32 bits and begins again every 78 hours.
const ClockUnit = 65536 * time.Nanosecond

// MaxLease is the longest lease that a chip supports. A longer lease counts as over, because the
// chip could not tell it from a lease that was given before its clock began again.
const MaxLease = (1 << 20) * ClockUnit

const (
	// MaxEpoch is the highest epoch of a chain configuration on a chip, because a version there has
	// 8 bits for the epoch.
	MaxEpoch = 1<<8 - 1
	// MaxSequence is the last sequence number that a head gives within an epoch. The head then
	// answers NOT_SERVING until the chain has a new configuration. The head never assigns the
	// number after MaxSequence.
	MaxSequence = 1<<24 - 2

	sequenceBits = 24
	closedBit    = 0x8000
)

// Version returns a version in a chip's format: epoch (8 bits) and sequence number (24 bits), in
// the low half of the header's version field. The error says which part is too large.
func Version(v wire.Version) (uint32, error) {
	if v.Epoch() > MaxEpoch {
		return 0, fmt.Errorf("version %v: a chip's epochs end at %d", v, MaxEpoch)
	}
	if v.Sequence() > MaxSequence {
		return 0, fmt.Errorf("version %v: a chip's sequences end at %d", v, MaxSequence)
	}
	return uint32(v.Epoch())<<sequenceBits | uint32(v.Sequence()), nil
}

// WireVersion converts a chip's version to the version that the other switches use.
func WireVersion(v uint32) wire.Version {
	return wire.MakeVersion(uint16(v>>sequenceBits), uint64(v&(1<<sequenceBits-1)))
}

// Entry translates a table entry of the v1model program into one of the chip's program. It does not
// change entries of tables that both programs share.
//
// A chip looks a session's lease up by session and port, so the caller must set the parameter port
// even to delete an entry.
func Entry(e p4rt.Entry) (p4rt.Entry, error) {
	switch e.Action {
	case "host_port", "open_host_port":
		return hostPort(e), nil
	case "leased_to":
		session, ok := e.Match["session"]
		if !ok {
			return p4rt.Entry{}, fmt.Errorf("%s: the entry has no match on session", e.Table)
		}
		port, ok := e.Params["port"]
		if !ok {
			return p4rt.Entry{}, fmt.Errorf("%s: the entry has no parameter port, which a chip matches on", e.Table)
		}
		e.Match = p4rt.Match{"session": session, "port": p4rt.Exact(port)}
		e.Params = nil
	case "set_chain":
		return chainOf(e)
	case "set_slot":
		realm, err := number(e, "realm")
		if err != nil {
			return p4rt.Entry{}, err
		}
		e.Params = with(e.Params, p4rt.Params{"realm": realm &^ closedBit, "closed": realm / closedBit})
	}
	return e, nil
}

// hostPort chooses the action without an address if the address is not known. A chip uses exclusive
// or to check whether a packet's source is the port's address.
func hostPort(e p4rt.Entry) p4rt.Entry {
	if address, err := number(e, "address"); err == nil && address == 0 {
		e.Action += "_of_any_address"
		e.Params = p4rt.Params{"principal": e.Params["principal"]}
	}
	return e
}

// chainOf adds the parameters for the first and the last version of the epoch.
func chainOf(e p4rt.Entry) (p4rt.Entry, error) {
	epoch, err := number(e, "epoch")
	if err != nil {
		return p4rt.Entry{}, err
	}
	if epoch > MaxEpoch {
		return p4rt.Entry{}, fmt.Errorf("%s: epoch %d is beyond a chip's last, %d: write the chain's keys to a new chain",
			e.Table, epoch, MaxEpoch)
	}
	e.Params = with(e.Params, p4rt.Params{"fresh": epoch<<sequenceBits | 1, "last": epoch<<sequenceBits | MaxSequence})
	return e, nil
}

func number(e p4rt.Entry, param string) (uint64, error) {
	switch n := e.Params[param].(type) {
	case uint64:
		return n, nil
	case uint32:
		return uint64(n), nil
	case uint16:
		return uint64(n), nil
	case int:
		return uint64(n), nil
	}
	return 0, fmt.Errorf("%s: the parameter %s of %s is missing or not a number", e.Table, param, e.Action)
}

// with returns a copy of the parameters, in which the values of changes replace the original ones.
func with(params, changes p4rt.Params) p4rt.Params {
	out := p4rt.Params{}
	maps.Copy(out, params)
	maps.Copy(out, changes)
	return out
}
