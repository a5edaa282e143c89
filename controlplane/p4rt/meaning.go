package p4rt

import (
	"cmp"
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// SameMeaning says whether two programs have the same tables, actions, registers and so on, by
// their ids: what controllers have written to one can stay when it becomes the other. What they are
// called, what is noted of them and in which order they stand does not matter. What fields of keys
// and parameters are called does: their ids only count them.
func SameMeaning(a, b *configv1.P4Info) bool {
	a, b = proto.CloneOf(a), proto.CloneOf(b)
	for _, info := range []*configv1.P4Info{a, b} {
		info.PkgInfo = nil
		forgetNames(info.ProtoReflect())
	}
	return proto.Equal(a, b)
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

// sortByID puts what has an id of its own in the order of the ids.
func sortByID(l protoreflect.List) {
	id := func(m protoreflect.Message) uint64 {
		if p := m.Descriptor().Fields().ByName("preamble"); p != nil {
			m = m.Get(p).Message()
		} else if m.Descriptor().Name() != "ActionRef" {
			return 0 // a key's fields and an action's parameters: in the order of the program
		}
		return m.Get(m.Descriptor().Fields().ByName("id")).Uint()
	}
	all := make([]protoreflect.Message, l.Len())
	for i := range all {
		all[i] = l.Get(i).Message()
	}
	slices.SortStableFunc(all, func(a, b protoreflect.Message) int { return cmp.Compare(id(a), id(b)) })
	for i, m := range all {
		l.Set(i, protoreflect.ValueOfMessage(m))
	}
}
