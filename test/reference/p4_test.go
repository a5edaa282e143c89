package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	p4 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/internal/refpage"
)

// profiles are the widths of values, in bits, for which the P4 program is compiled.
var profiles = []string{"128", "1024", "4096", "8192"}

var (
	// p4Comment matches a comment before a table, an action, a register, a counter or a meter.
	p4Comment = regexp.MustCompile(`/\*((?:[^*]|\*[^/])*)\*/\s*((?:@\w+(?:\((?:[^()"]|"[^"]*"|\([^()]*\))*\))?\s*)*)` +
		`(?:table|action|(?:REGISTER|COUNTER|METER)\([^()]*\))\s+(\w+)`)
	// p4Restriction matches a P4-constraints restriction of an entry or of an action's parameters.
	p4Restriction = regexp.MustCompile(`^@(?:entry|action)_restriction\("(.*)"\)$`)
)

// TestP4Program checks that the reference page has the parts of the P4 program that a controller
// sees.
func TestP4Program(t *testing.T) {
	var infos []*p4.P4Info
	for _, profile := range profiles {
		infos = append(infos, p4info(t, "netcraq-"+profile))
	}
	comments := p4Comments(t)
	var page strings.Builder
	page.WriteString(refpage.Head("P4 tables and registers", "`p4src/compiled`",
		"This page lists what a P4Runtime controller sees of [`p4src/netcraq.p4`](../../p4src/netcraq.p4). [The\n"+
			"protocol](../protocol.md) says how the parts work together. A number that depends on the size of a\n"+
			"value is given for the profiles "+strings.Join(profiles, ", ")+", in this order. The program for PSA,\n"+
			"`p4src/netcraq_psa.p4`, has the same tables and registers, with the same ids."))
	p4Tables(t, &page, infos, comments)
	p4Actions(t, &page, infos, comments)
	p4Arrays(t, &page, infos, comments)
	page.WriteString("\n## Packets of the controller\n\n" + refpage.Row("header", "fields, with bits") + refpage.Row("---", "---"))
	for _, header := range infos[0].ControllerPacketMetadata {
		var fields []string
		for _, f := range header.Metadata {
			fields = append(fields, fmt.Sprintf("`%s` %d", f.Name, f.Bitwidth))
		}
		page.WriteString(refpage.Row("`"+header.Preamble.Alias+"`", strings.Join(fields, ", ")))
	}
	refpage.Check(t, root, "p4.md", page.String())
	for i, profile := range profiles {
		psa := p4info(t, "netcraq_psa-"+profile)
		if is, want := p4Names(psa), p4Names(infos[i]); !slices.Equal(is, want) {
			t.Errorf("profile %s: the program for PSA has %q, that for v1model %q", profile, is, want)
		}
	}
}

func p4info(t *testing.T, name string) *p4.P4Info {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "p4src", "compiled", name+".p4info.txtpb"))
	if err != nil {
		t.Fatal(err)
	}
	info := new(p4.P4Info)
	if err := prototext.Unmarshal(text, info); err != nil {
		t.Fatal(err)
	}
	return info
}

// p4Names returns the tables, actions and registers of a program, with their ids.
func p4Names(info *p4.P4Info) (all []string) {
	for _, table := range info.Tables {
		all = append(all, fmt.Sprintf("%s %d", table.Preamble.Alias, table.Preamble.Id))
	}
	used := map[uint32]bool{} // some actions, such as PSA's built-in actions, are in no table
	for _, table := range info.Tables {
		for _, ref := range table.ActionRefs {
			used[ref.Id] = true
		}
	}
	for _, action := range info.Actions {
		if used[action.Preamble.Id] {
			all = append(all, fmt.Sprintf("%s %d", action.Preamble.Alias, action.Preamble.Id))
		}
	}
	for _, register := range info.Registers {
		all = append(all, fmt.Sprintf("%s %d", register.Preamble.Alias, register.Preamble.Id))
	}
	slices.Sort(all)
	return all
}

// p4Comments returns the comments in the P4 sources. The key is the name of the part that a comment
// explains.
func p4Comments(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(root + "/p4src/include/*.p4")
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range p4Comment.FindAllStringSubmatch(string(text), -1) {
			comments[found[3]] = regexp.MustCompile(`\n\s*\*`).ReplaceAllString(found[1], " ")
		}
	}
	if len(comments) < 10 {
		t.Fatalf("only %d comments were found", len(comments))
	}
	return comments
}

// perProfile formats a number. If the number differs between profiles, it formats one number for
// each profile.
func perProfile(infos []*p4.P4Info, of func(*p4.P4Info) int) string {
	var all []string
	for _, info := range infos {
		all = append(all, "none")
		if n := of(info); n > 0 {
			all[len(all)-1] = number(n)
		}
	}
	if len(slices.Compact(slices.Clone(all))) == 1 {
		return all[0]
	}
	return strings.Join(all, " / ")
}

// number formats a number with commas.
func number(n int) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return number(n/1000) + fmt.Sprintf(",%03d", n%1000)
}

// restriction returns a sentence about a P4-constraints restriction, or "" if there is none.
func restriction(annotations []string) string {
	for _, a := range annotations {
		if found := p4Restriction.FindStringSubmatch(a); found != nil {
			return "Restriction: `" + found[1] + "`."
		}
	}
	return ""
}

// byAlias finds a part of a program by its alias.
func byAlias[T interface{ GetPreamble() *p4.Preamble }](parts []T, alias string) (found T) {
	for _, part := range parts {
		if part.GetPreamble().GetAlias() == alias {
			return part
		}
	}
	return found
}

func p4Tables(t *testing.T, page *strings.Builder, infos []*p4.P4Info, comments map[string]string) {
	t.Helper()
	actions := map[uint32]string{}
	for _, a := range infos[0].Actions {
		actions[a.Preamble.Id] = a.Preamble.Alias
	}
	page.WriteString("\n## Tables\n\n" + refpage.Row("table", "key, with bits", "actions", "entries", "meaning") +
		refpage.Row("---", "---", "---", "---", "---"))
	for _, table := range infos[0].Tables {
		name := table.Preamble.Alias
		var keys, refs []string
		for _, key := range table.MatchFields {
			kind := strings.ToLower(key.GetMatchType().String())
			keys = append(keys, fmt.Sprintf("`%s` %d, %s", key.Name, key.Bitwidth, kind))
		}
		for _, ref := range table.ActionRefs {
			action := "`" + actions[ref.Id] + "`"
			switch {
			case ref.Id == table.ConstDefaultActionId:
				action += " (always the default)"
			case ref.Scope == p4.ActionRef_DEFAULT_ONLY:
				action += " (only as the default)"
			}
			refs = append(refs, action)
		}
		entries := perProfile(infos, func(i *p4.P4Info) int { return int(byAlias(i.Tables, name).Size) })
		page.WriteString(refpage.Row("`"+name+"`", strings.Join(keys, "; "), strings.Join(refs, ", "), entries,
			comments[name]+" "+restriction(table.Preamble.Annotations)))
	}
}

func p4Actions(t *testing.T, page *strings.Builder, infos []*p4.P4Info, comments map[string]string) {
	t.Helper()
	page.WriteString("\n## Actions\n\n" + refpage.Row("action", "parameters, with bits", "meaning") +
		refpage.Row("---", "---", "---"))
	for _, action := range infos[0].Actions {
		name := action.Preamble.Alias
		var parameters []string
		for _, p := range action.Params {
			bits := perProfile(infos, func(i *p4.P4Info) int {
				params := byAlias(i.Actions, name).Params
				at := slices.IndexFunc(params, func(o *p4.Action_Param) bool { return o.Id == p.Id })
				return int(params[at].Bitwidth)
			})
			parameters = append(parameters, "`"+p.Name+"` "+bits)
		}
		meaning := comments[name] + " "
		var restrictions []string
		// Restrictions may differ between profiles, because they may contain the number of slots.
		for _, info := range infos {
			restrictions = append(restrictions, restriction(byAlias(info.Actions, name).Preamble.Annotations))
		}
		meaning += strings.ReplaceAll(strings.Join(slices.Compact(restrictions), " "), ". Restriction: ", " / ")
		page.WriteString(refpage.Row("`"+name+"`", strings.Join(parameters, ", "), meaning))
	}
}

func p4Arrays(t *testing.T, page *strings.Builder, infos []*p4.P4Info, comments map[string]string) {
	t.Helper()
	bits := func(r *p4.Register) int { return int(r.GetTypeSpec().GetBitstring().GetBit().GetBitwidth()) }
	page.WriteString("\n## Registers\n\n" + refpage.Row("register", "bits", "cells", "meaning") +
		refpage.Row("---", "---", "---", "---"))
	// Only the largest profile has all registers.
	for _, register := range infos[len(infos)-1].Registers {
		name := register.Preamble.Alias
		if bits(register) == 0 {
			t.Fatalf("the register %s is not of bits", name)
		}
		width := func(i *p4.P4Info) int { return bits(byAlias(i.Registers, name)) }
		size := func(i *p4.P4Info) int { return int(byAlias(i.Registers, name).GetSize()) }
		page.WriteString(refpage.Row("`"+name+"`", perProfile(infos, width), perProfile(infos, size), comments[name]))
	}
	page.WriteString("\n`objects_store` has the values and `objects_length` their lengths in bytes. A slot has several\n" +
		"cells. [`objects.p4`](../../p4src/include/objects.p4) says which.\n")
	page.WriteString("\n## Counters and meters\n\n" + refpage.Row("name", "kind", "cells", "meaning") +
		refpage.Row("---", "---", "---", "---"))
	for _, counter := range infos[0].Counters {
		name := counter.Preamble.Alias
		page.WriteString(refpage.Row("`"+name+"`", "counter of "+strings.ToLower(counter.Spec.Unit.String()),
			perProfile(infos, func(i *p4.P4Info) int { return int(byAlias(i.Counters, name).Size) }), comments[name]))
	}
	for _, meter := range infos[0].Meters {
		page.WriteString(refpage.Row("`"+meter.Preamble.Alias+"`", "meter of "+strings.ToLower(meter.Spec.Unit.String()),
			number(int(meter.Size)), comments[meter.Preamble.Alias]))
	}
}
