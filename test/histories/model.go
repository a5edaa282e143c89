// Package histories records what clients of an etcd see, key by key, and says whether it is
// linearizable in keys, values, versions and revisions: for tests of gateways, of which there may
// be several before one etcd.
package histories

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// keyState is a key of etcd's as a history tells about it. mod and create may be not known, of a
// value whose writer had no answer: unknown, until somebody reads it.
type keyState struct {
	there                bool
	value                string
	create, mod, version int64
}

const unknown = -1

// keyInput is what was asked about one key, and keyOutput what was answered.
type keyInput struct {
	key   string
	write bool
	there bool   // of a write: it leaves a value
	value string // this one
}

type keyOutput struct {
	known bool // the answer came
	did   bool // of a write: it changed the key
	rev   int64
	state keyState // of a read
}

// matches says whether what is known about a key agrees with what was read, and what is known then.
func matches(s, read keyState) (keyState, bool) {
	if s.there != read.there || s.value != read.value {
		return s, false
	}
	if !s.there {
		return s, true
	}
	if s.version != read.version {
		return s, false
	}
	if s.mod != unknown && s.mod != read.mod || s.create != unknown && s.create != read.create {
		return s, false
	}
	return read, true
}

// Model is the keys of an etcd, each by itself, with their revisions. Inputs and outputs are those
// that a History makes.
var Model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			k := o.Input.(keyInput).key
			by[k] = append(by[k], o)
		}
		var parts [][]porcupine.Operation
		for _, p := range by {
			parts = append(parts, p)
		}
		return parts
	},
	Init: func() any { return keyState{} },
	Step: func(state, input, output any) (bool, any) {
		s, in, out := state.(keyState), input.(keyInput), output.(keyOutput)
		switch {
		case !in.write:
			now, ok := matches(s, out.state)
			return ok, now
		case out.known && !out.did: // a deletion of nothing
			return !s.there, s
		case out.known && s.there && s.mod != unknown && out.rev <= s.mod:
			return false, s
		case !in.there:
			return !out.known || s.there, keyState{}
		}
		next := keyState{there: true, value: in.value, create: s.create, mod: out.rev, version: s.version + 1}
		if !out.known {
			next.mod = unknown
		}
		if !s.there {
			next.create, next.version = next.mod, 1
		}
		return true, next
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v -> %+v", input, output) },
}
