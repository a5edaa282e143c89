// Package histories records what clients of an etcd see, key by key, and checks that it is
// linearizable in keys, values, versions and revisions. Tests of gateways use it, also with several
// gateways in front of one etcd.
package histories

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// keyState is the state of an etcd key, as far as a history shows it. mod and create may be
// unknown: for a value whose writer got no answer, until a client reads it.
type keyState struct {
	there                bool
	value                string
	create, mod, version int64
}

const unknown = -1

// keyInput is a request about one key, and keyOutput is its answer.
type keyInput struct {
	key   string
	write bool
	there bool   // for a write: false if it deletes the key
	value string // for a write that does not delete: the written value
}

type keyOutput struct {
	known bool // an answer arrived
	did   bool // for a write: it changed the key
	rev   int64
	state keyState // for a read: the returned state
}

// matches returns whether a read agrees with what is known about a key, and the combined knowledge.
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

// Model is the keys of an etcd with their revisions, each key by itself. A History makes its inputs
// and outputs.
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
		case out.known && !out.did: // a deletion of a key that did not exist
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
