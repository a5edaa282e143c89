// Package histories records the operations of etcd's clients, separately for each key. It checks
// that they are linearizable in keys, values, versions and revisions. Tests of gateways use it,
// including tests with several gateways in front of one etcd.
package histories

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// keyState is the state of an etcd key, as far as a history shows it. If the writer of a value got
// no answer, mod and create are unknown until a client reads the value.
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
	there bool   // for a write, false if it deletes the key
	value string // the value that a write wrote, unless it deletes the key
}

type keyOutput struct {
	known bool // whether an answer arrived
	did   bool // for a write, whether it changed the key
	rev   int64
	state keyState // the state that a read returned
}

// matches reports whether the result of a read agrees with the known state of a key. It also
// returns the combination of both.
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

// Model is porcupine's model of an etcd key with its revisions. Each key has its own history. A
// History makes the inputs and outputs.
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
		case out.known && !out.did: // This deletion found no key to delete.
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
