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
	// CheckOnly makes the store refuse keys as usual, and otherwise do nothing.
	CheckOnly bool
}

// Comparison holds if a key has a version (0: it was never written).
type Comparison struct {
	Name    string
	Version wire.Version
}

// Write sets a key's value or, with Delete, removes it.
type Write struct {
	Name   string
	Value  []byte
	Delete bool
}

// Transacted is the result of a Transaction.
type Transacted struct {
	// Done reports whether all comparisons held. Then everything was written.
	Done bool
	// Versions are the versions of the keys in Transaction.Write, in its order, if Done.
	Versions []wire.Version
}

// Names returns the keys of a transaction, each once.
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

// Volatile returns the error that refuses a transaction because of a volatile key.
func Volatile(key Key) error {
	return nodeapi.Errorf(nodeapi.CodeInvalidArgument,
		"use durable keys, of a namespace that is durable by its policy; or cas, for one key",
		"no transaction can have the key %q of the namespace %s: it is volatile, or would be. A volatile key is only "+
			"in the switches, where a chain orders the writes of each key for itself, and nothing orders those of several",
		key.Name, key.Namespace)
}
