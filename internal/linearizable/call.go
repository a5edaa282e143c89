// Package linearizable checks whether clients' observations of the keys of chains are linearizable.
// It has porcupine models of a key, for the tests and for the simulator.
package linearizable

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
)

// Call is a client's call, or a change of a key that no client made (Op). Begin and End are times
// by one clock for all clients.
type Call struct {
	Client     int    // number of the client; the lowest is -2
	Name       string // name of the key, in histories of names
	Key        uint32 // the requested KEY_ID; for a move, the former KEY_ID
	To         uint32 // for a move, the new KEY_ID
	Op         wire.Op
	Delete     bool
	Value      string // the written value
	Expected   wire.Version
	Begin, End int64
	Unknown    bool // it is unknown whether the call was executed
	Failed     bool // the CAS failed
	Absent     bool // the KEY_ID does not exist
	Nothing    bool // the call is a read without an answer
	Found      bool
	Got        string
	Version    wire.Version
}

// These operations change a key without a client's read or write. Adding a key creates its slot
// with a tombstone, and then writes its value. Removing a key may leave a tombstone in its slot
// before the slot is removed.
const (
	Add wire.Op = 0xF0 + iota
	First
	Clear
	Remove
	Move
	Rewrite // gives the value another version
)

// Increment adds 1 to a key's number. A key without a value counts as 0. Call.Value is the sum.
const Increment wire.Op = 0xE0

// Operations converts a history to porcupine's form. A call with an unknown outcome may be executed
// at any later time, or never.
func Operations(history []Call) (ops []porcupine.Operation) {
	for n, x := range history {
		if x.Nothing {
			continue
		}
		o := porcupine.Operation{ClientId: x.Client + 2, Input: x, Call: x.Begin, Return: x.End}
		if x.Unknown { // a porcupine client has one call at a time, and this call never ends
			o.Return, o.ClientId = math.MaxInt64, 1<<20+n
		}
		ops = append(ops, o)
	}
	return ops
}

// model returns a porcupine model of a kind of state. The function of returns the partition of a
// call.
func model[State any, Of comparable](initially State, step func(State, Call) (bool, State),
	of func(Call) Of) porcupine.Model {
	return porcupine.Model{
		Partition: func(h []porcupine.Operation) [][]porcupine.Operation {
			by := map[Of][]porcupine.Operation{}
			for _, o := range h {
				what := of(o.Input.(Call))
				by[what] = append(by[what], o)
			}
			return slices.Collect(maps.Values(by))
		},
		Init: func() any { return initially },
		Step: func(state, input, _ any) (bool, any) {
			ok, next := step(state.(State), input.(Call))
			return ok, next
		},
		DescribeOperation: func(input, _ any) string { return fmt.Sprintf("%+v", input) },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}
