package store

import (
	"github.com/netcraq/netcraq/api/nodeapi"
	"github.com/netcraq/netcraq/api/wire"
)

// Transaction is the input of Transact. No name is twice in Compare, nor in Write.
type Transaction struct {
	Namespace string
	Compare   []Comparison
	Write     []Write
	// CheckOnly makes the store refuse keys as it would without, and otherwise do nothing.
	CheckOnly bool
}

// Comparison holds if a key has a version (0: it was never written).
type Comparison struct {
	Name    string
	Version wire.Version
}

// Write gives a key a value or, with Delete, leaves it without one.
type Write struct {
	Name   string
	Value  []byte
	Delete bool
}

// Transacted is the result of a Transaction.
type Transacted struct {
	// Done says that all comparisons held, and that everything was written.
	Done bool
	// Versions are those of the keys of Transaction.Write, in its order, if it is Done.
	Versions []wire.Version
}

// Names are the keys of a transaction, each once.
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

// Volatile refuses a transaction because of one of its keys.
func Volatile(key Key) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument,
		"use durable keys, of a namespace that is durable by its policy; or cas, for one key",
		"no transaction can have the key %q of the namespace %s: it is volatile, or would be. A volatile key is only "+
			"in the switches, where a chain orders the writes of each key for itself, and nothing orders those of several",
		key.Name, key.Namespace)
}
