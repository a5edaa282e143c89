package p4rt

import (
	"cmp"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// SameMeaning reports whether two programs have the same tables, actions, registers and so on, by
// their ids. If so, table content that controllers have written can stay when one program replaces
// the other. Names, annotations and order do not matter, except for the names of key fields and
// parameters, because their ids are only counters.
func SameMeaning(a, b *configv1.P4Info) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	for _, info := range []*configv1.P4Info{a, b} {
		info.PkgInfo = nil
		forgetNames(info.ProtoReflect())
	}
	return proto.Equal(a, b)
}

// Agree reports whether everything that both programs have, by id, means the same in both. If so, a
// controller of one program can use the other program, except for missing parts. Parts that only
// one program has do not matter.
func Agree(a, b *configv1.P4Info) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	fields := a.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !f.IsList() || f.Message() == nil || f.Message().Fields().ByName("preamble") == nil {
			continue // skip the package, the types, and externs of other architectures
		}
		has := map[uint64]int{}
		of := func(m *configv1.P4Info) protoreflect.List { return m.ProtoReflect().Mutable(f).List() }
		for _, m := range []*configv1.P4Info{a, b} {
			for j := range of(m).Len() {
				has[idOf(of(m).Get(j).Message())]++
			}
		}
		for _, m := range []*configv1.P4Info{a, b} {
			l, kept := of(m), 0
			for j := range l.Len() {
				if v := l.Get(j); has[idOf(v.Message())] == 2 {
					l.Set(kept, v)
					kept++
				}
			}
			l.Truncate(kept)
		}
	}
	return SameMeaning(a, b)
}

func forgetNames(m protoreflect.Message) {
	said := []protoreflect.Name{"doc", "annotations", "annotation_locations", "structured_annotations"}
	if m.Descriptor().Name() == "Preamble" {
		said = append(said, "name", "alias")
	}
	for _, name := range said {
		if f := m.Descriptor().Fields().ByName(name); f != nil {
			m.Clear(f)
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool {
				forgetNames(v.Message())
				return true
			})
		case f.IsMap() || f.Message() == nil:
		case f.IsList():
			sortByID(v.List())
			for i := range v.List().Len() {
				forgetNames(v.List().Get(i).Message())
			}
		default:
			forgetNames(v.Message())
		}
		return true
	})
}

// idOf returns the id of a message, or 0 if the message has none.
func idOf(m protoreflect.Message) uint64 {
	if p := m.Descriptor().Fields().ByName("preamble"); p != nil {
		m = m.Get(p).Message()
	} else if m.Descriptor().Name() != "ActionRef" {
		return 0 // a key's fields and an action's parameters keep the program's order, so they get no id here
	}
	return m.Get(m.Descriptor().Fields().ByName("id")).Uint()
}

// sortByID sorts messages that have ids by their ids.
func sortByID(l protoreflect.List) {
	all := make([]protoreflect.Message, l.Len())
	for i := range all {
		all[i] = l.Get(i).Message()
	}
	slices.SortStableFunc(all, func(a, b protoreflect.Message) int { return cmp.Compare(idOf(a), idOf(b)) })
	for i, m := range all {
		l.Set(i, protoreflect.ValueOfMessage(m))
	}
}
