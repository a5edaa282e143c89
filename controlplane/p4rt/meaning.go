package p4rt

import (
	"cmp"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// SameMeaning says whether two programs have the same tables, actions, registers and so on, by
// their ids: then what controllers have written to one can stay when it is replaced by the other.
// Their names, annotations and order do not matter. The names of fields of keys and parameters do:
// their ids only count them.
func SameMeaning(a, b *configv1.P4Info) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	for _, info := range []*configv1.P4Info{a, b} {
		info.PkgInfo = nil
		forgetNames(info.ProtoReflect())
	}
	return proto.Equal(a, b)
}

// Agree says whether everything that two programs both have, by id, means the same in both. Then a
// controller of one program can use those parts of the other, if they exist. Parts of only one
// program do not matter.
func Agree(a, b *configv1.P4Info) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	fields := a.ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if !f.IsList() || f.Message() == nil || f.Message().Fields().ByName("preamble") == nil {
			continue // the package, the types, externs of other architectures
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

// idOf is the id of what has one of its own; 0: it has none.
func idOf(m protoreflect.Message) uint64 {
	if p := m.Descriptor().Fields().ByName("preamble"); p != nil {
		m = m.Get(p).Message()
	} else if m.Descriptor().Name() != "ActionRef" {
		return 0 // a key's fields and an action's parameters: in the order of the program
	}
	return m.Get(m.Descriptor().Fields().ByName("id")).Uint()
}

// sortByID puts what has an id of its own in the order of the ids.
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
