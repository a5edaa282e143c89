package store

import (
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
)

// Transaction is the input of Transact. A name occurs at most once in Compare, and at most once in
// Write.
type Transaction struct {
	Namespace string
	Compare   []Comparison
	Write     []Write
	// CheckOnly makes the store refuse keys as usual, but otherwise do nothing.
	CheckOnly bool
}

// Comparison requires that a key has a version. The version 0 means that the key was never written.
type Comparison struct {
	Name    string
	Version wire.Version
}

// Write sets the value of a key or, if Delete is set, removes the value.
type Write struct {
	Name   string
	Value  []byte
	Delete bool
}

// Transacted is the result of a Transaction.
type Transacted struct {
	// Done reports whether all comparisons held, so that everything was written.
	Done bool
	// Versions has the new versions of the keys in Transaction.Write, in the same order, if Done is
	// set.
	Versions []wire.Version
}

// Names returns the names of all keys in a transaction, each once.
func (t *Transaction) Names() []string {
	names := make([]string, 0, len(t.Compare)+len(t.Write))
	seen := make(map[string]bool, cap(names))
	add := func(name string) {
		if !seen[name] {
			seen[name], names = true, append(names, name)
		}
	}
	for _, c := range t.Compare {
		add(c.Name)
	}
	for _, w := range t.Write {
		add(w.Name)
	}
	return names
}

// Volatile returns the error for a transaction that contains a volatile key.
func Volatile(key Key) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument,
		"use durable keys, of a namespace that is durable by its policy; or cas, for one key",
		"no transaction can have the key %q of the namespace %s: it is volatile, or would be. A volatile key is only "+
			"in the switches, where a chain orders the writes of each key for itself, and nothing orders those of several",
		key.Name, key.Namespace)
}
