package p4rt

import (
	"slices"
	"testing"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/p4src"
)

// compiledInfo returns the P4Info that p4c wrote for the NetCRAQ program.
func compiledInfo(t *testing.T) *configv1.P4Info {
	t.Helper()
	_, text, err := p4src.Compiled(128)
	if err != nil {
		t.Fatal(err)
	}
	var program configv1.P4Info
	if err := prototext.Unmarshal(text, &program); err != nil {
		t.Fatal(err)
	}
	return &program
}

// TestAgree: programs agree if their common parts mean the same, whatever additional parts one of
// them has.
func TestAgree(t *testing.T) {
	program := compiledInfo(t)
	register := &configv1.Register{Preamble: &configv1.Preamble{Id: 0x16777777, Name: "more"}, Size: 7}
	for what, c := range map[string]struct {
		change func(*configv1.P4Info)
		agree  bool
	}{
		"nothing":               {func(*configv1.P4Info) {}, true},
		"a register more":       {func(p *configv1.P4Info) { p.Registers = append(p.Registers, register) }, true},
		"a register less":       {func(p *configv1.P4Info) { p.Registers = p.Registers[1:] }, true},
		"a table less":          {func(p *configv1.P4Info) { p.Tables = p.Tables[1:] }, true},
		"another size":          {func(p *configv1.P4Info) { p.Registers[2].Size++ }, false},
		"another width of keys": {func(p *configv1.P4Info) { p.Tables[3].MatchFields[0].Bitwidth++ }, false},
		"an action of a table less": {func(p *configv1.P4Info) {
			p.Tables[0].ActionRefs = p.Tables[0].ActionRefs[1:]
		}, false},
		"a parameter more": {func(p *configv1.P4Info) {
			p.Actions[0].Params = append(p.Actions[0].Params, &configv1.Action_Param{Id: 9, Name: "more", Bitwidth: 8})
		}, false},
	} {
		other := proto.CloneOf(program)
		c.change(other)
		whole := proto.CloneOf(other)
		if a, b := Agree(program, other), Agree(other, program); a != c.agree || b != c.agree {
			t.Errorf("%s: they agree: %v, and the other way %v", what, a, b)
		}
		if !proto.Equal(other, whole) {
			t.Errorf("%s: comparing has changed it", what)
		}
	}
}

// TestSameMeaning checks which changes of a program leave the meaning of table entries unchanged.
func TestSameMeaning(t *testing.T) {
	program := compiledInfo(t)
	table := func(p *configv1.P4Info) *configv1.Table { return p.Tables[0] }
	action := func(p *configv1.P4Info) *configv1.Action {
		return p.Actions[slices.IndexFunc(p.Actions, func(a *configv1.Action) bool { return len(a.Params) > 1 })]
	}
	for what, c := range map[string]struct {
		change func(*configv1.P4Info)
		same   bool
	}{
		"nothing":               {func(*configv1.P4Info) {}, true},
		"another release":       {func(p *configv1.P4Info) { p.PkgInfo = &configv1.PkgInfo{Version: "77"} }, true},
		"another name":          {func(p *configv1.P4Info) { action(p).Preamble.Name, action(p).Preamble.Alias = "x.y", "y" }, true},
		"an annotation":         {func(p *configv1.P4Info) { table(p).Preamble.Annotations = []string{"@of_a_test"} }, true},
		"a format":              {func(p *configv1.P4Info) { table(p).MatchFields[0].Annotations = []string{"@format(HEX_STR)"} }, true},
		"another order":         {func(p *configv1.P4Info) { slices.Reverse(p.Tables); slices.Reverse(p.Registers) }, true},
		"actions in turn":       {func(p *configv1.P4Info) { slices.Reverse(table(p).ActionRefs) }, true},
		"another id":            {func(p *configv1.P4Info) { table(p).Preamble.Id++ }, false},
		"another table":         {func(p *configv1.P4Info) { p.Tables = p.Tables[1:] }, false},
		"another size":          {func(p *configv1.P4Info) { p.Registers[0].Size++ }, false},
		"another width":         {func(p *configv1.P4Info) { table(p).MatchFields[0].Bitwidth++ }, false},
		"a key of another name": {func(p *configv1.P4Info) { table(p).MatchFields[0].Name = "x" }, false},
		"parameters exchanged": {func(p *configv1.P4Info) {
			a := action(p)
			a.Params[0].Name, a.Params[1].Name = a.Params[1].Name, a.Params[0].Name
		}, false},
		"another default": {func(p *configv1.P4Info) { table(p).ConstDefaultActionId++ }, false},
		"an action is not for entries": {func(p *configv1.P4Info) {
			table(p).ActionRefs[0].Scope = configv1.ActionRef_DEFAULT_ONLY
		}, false},
	} {
		other := proto.CloneOf(program)
		c.change(other)
		whole := proto.CloneOf(other)
		if got := SameMeaning(program, other); got != c.same {
			t.Errorf("%s: the same is %v", what, got)
		}
		if !proto.Equal(other, whole) {
			t.Errorf("%s: comparing has changed it", what)
		}
	}
}
