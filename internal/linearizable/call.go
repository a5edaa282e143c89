// Package linearizable says whether what clients saw of the keys of chains is linearizable: it has
// porcupine's models of a key, for the tests and for the simulator.
package linearizable

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/anishathalye/porcupine"

	"github.com/netcraq/netcraq/api/wire"
)

// Call is one call of a client's, or one change of a key that somebody else made (Op). Begin and
// End are of one clock for all clients.
type Call struct {
	Client     int    // from -2 on
	Name       string // where a history is of names
	Key        uint32 // the KEY_ID that was asked for; before a move
	To         uint32 // ... and after it
	Op         wire.Op
	Delete     bool
	Value      string // written
	Expected   wire.Version
	Begin, End int64
	Unknown    bool // whether it was executed
	Failed     bool // the CAS was
	Absent     bool // there is no such KEY_ID
	Nothing    bool // a read without an answer
	Found      bool
	Got        string
	Version    wire.Version
}

// What is done to a key alongside the reads and writes of clients. Adding a key makes its slot,
// with a tombstone, and then gives it its value; removing one may leave a tombstone in it before it
// goes.
const (
	Add wire.Op = 0xF0 + iota
	First
	Clear
	Remove
	Move
	Rewrite // what is there gets another version
)

// Increment adds 1 to a number, which is 0 if there is none: Value is what it is then.
const Increment wire.Op = 0xE0

// Operations are a history as porcupine takes it. What is not known to have been executed may be
// executed at any later time, or never.
func Operations(history []Call) (ops []porcupine.Operation) {
	for n, x := range history {
		if x.Nothing {
			continue
		}
		o := porcupine.Operation{ClientId: x.Client + 2, Input: x, Call: x.Begin, Return: x.End}
		if x.Unknown { // a client of the checker's has one call at a time, and this one is never over
			o.Return, o.ClientId = math.MaxInt64, 1<<20+n
		}
		ops = append(ops, o)
	}
	return ops
}

// model is porcupine's, of a kind of state that is told apart by something of the calls.
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
