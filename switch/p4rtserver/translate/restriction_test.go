package translate

import (
	"strings"
	"testing"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"

	"github.com/netcraq/netcraq/switch/target"
)

// restrictedKeys has a 16-bit key of each match kind. restrictedNames has the names for these keys
// in restrictions.
var restrictedKeys = []key{
	{name: "exact", width: 16, kind: p4cfg.MatchField_EXACT},
	{name: "hdr.lpm", width: 16, kind: p4cfg.MatchField_LPM},
	{name: "ternary", width: 16, kind: p4cfg.MatchField_TERNARY},
	{name: "range", width: 16, kind: p4cfg.MatchField_RANGE},
	{name: "narrow", width: 8, kind: p4cfg.MatchField_EXACT},
}

func restrictedNames() map[string]operand {
	names := map[string]operand{}
	for i, k := range restrictedKeys {
		names[k.name] = operand{kind: isMatch, width: k.width, parts: partsOf(i, &k)}
	}
	return names
}

// TestRestrictions evaluates restrictions for one entry: exact 7, lpm 0x0a00/8, ternary 0x0001 &&&
// 0x00ff, range 3 to 9, narrow 255, priority 12.
func TestRestrictions(t *testing.T) {
	s := &Subject{Priority: 12, Match: []target.FieldMatch{
		{Value: []byte{0, 7}}, {Value: []byte{10, 0}, PrefixLen: 8},
		{Value: []byte{0, 1}, Mask: []byte{0, 255}}, {Value: []byte{0, 3}, Mask: []byte{0, 9}}, {Value: []byte{255}},
	}}
	for text, want := range map[string]bool{
		"true": true, "false": false, "!false": true, "!!false": false, "true;": true, "true;false": false,
		"exact == 7": true, "exact::value == 0x7": true, "7 == exact": true, "exact != 7": false,
		"exact < 7": false, "exact <= 7": true, "exact > 6": true, "exact >= 8": false,
		"exact == 0b111": true, "exact == 0o7": true, "exact == 0d07": true, "exact == 007": true, "exact == 010": false,
		"exact == 65543":                    true, // 65543 is 7 in 16 bits
		"narrow == -1":                      true,
		"exact == -1":                       false,
		"- - 5 == 5":                        true,
		"hdr.lpm::prefix_length == 8":       true,
		"hdr.lpm::prefix_length > -1":       true,
		"hdr.lpm::value == 0x0a00":          true,
		"hdr.lpm == 0x0a00":                 false, // the right side would be a prefix of 16 bits
		"hdr.lpm != 0x0a00":                 true,
		"ternary::mask == 255":              true,
		"ternary == 1":                      false,
		"range::low == 3":                   true,
		"range::high - 9 == 0":              false, // there is no arithmetic; see below
		"range == 3":                        false,
		"::priority == 12":                  true,
		"true || false && false":            true, // && binds more tightly
		"(true || false) && false":          false,
		"false -> false":                    true,
		"true -> exact == 8":                false,
		"true -> exact == 7 && true":        true,
		"exact == 8 -> narrow == 1; true":   true,
		"(true; false)":                     false,
		"true == (exact == 7)":              true,
		"true != true":                      false,
		"exact == 7 // and so on\n":         true,
		"/* a\nb */ exact == 7":             true,
		"hdr.lpm::value < ipv4('0.0.11.0')": true,
		"exact < mac('00:00:00:00:01:00')":  true,
		"exact < ipv6('::8')":               true,
	} {
		met, err := parseRestriction(text, restrictedNames(), true)
		if text == "range::high - 9 == 0" {
			if err == nil {
				t.Errorf("%s: it was read", text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if met(s) != want {
			t.Errorf("%s is %v", text, !want)
		}
	}
}

// TestRestrictionsRefused checks that invalid and meaningless restrictions are refused with an
// error that gives the reason.
func TestRestrictionsRefused(t *testing.T) {
	for text, why := range map[string]string{
		"":                                  "it ends too early",
		";":                                 "there is no ;",
		"   // nothing":                     "it ends too early",
		"exact":                             "a match stands where a condition should",
		"7":                                 "a number stands where a condition should",
		"exact ==":                          "it ends too early",
		"exact = 7":                         `"=" is not of the language`,
		"exact & 1 == 1":                    `"&" is not of the language`,
		"exact + 1 == 8":                    `"+" is not of the language`,
		"exact == 7 narrow == 1":            `"narrow" is not expected`,
		"exact == 7 == 7":                   `"==" is not expected`,
		"true -> true -> true":              `"->" is not expected`,
		"(exact == 7":                       `")" is missing`,
		"exact == 7)":                       `")" is not expected`,
		"nobody == 7":                       "there is no nobody",
		"exact::mask == 7":                  "exact has no ::mask",
		"ternary::prefix_length < 7":        "ternary has no ::prefix_length",
		"ternary < 7":                       "a match stands where a number should",
		"hdr.lpm == ternary":                "a match stands where a number should",
		"exact == narrow":                   "16 bits are compared with 8",
		"exact == true":                     "a truth value stands where a number should",
		"true < false":                      "a truth value stands where a number should",
		"!exact":                            "a match stands where a condition should",
		"-exact == 1":                       "a field of 16 bits has no negative",
		"7 && true":                         "a number stands where a condition should",
		"::length == 1":                     "there is no ::length",
		"exact == 0x":                       `"0x" is no number`,
		"exact == 1_0":                      `"1_0" is no number`,
		"exact == 0b12":                     `"0b12" is no number`,
		"exact == 'seven'":                  "there is no 'seven'",
		"exact == 'seven":                   `"'" is not of the language`,
		"exact == ipv4(7)":                  "ipv4(7) is no address",
		"exact == ipv4('::1')":              "ipv4('::1') is no address",
		"exact == ipv6('10.0.0.1')":         "ipv6('10.0.0.1') is no address",
		"exact == mac('::')":                "mac('::') is no address",
		"exact == dns('a')":                 "there is no dns",
		"exact == \x00":                     `"\x00" is not of the language`,
		"exact == 7 /* and so on":           `"/" is not of the language`,
		strings.Repeat("!", 1<<12) + "true": "nested deeper",
		strings.Repeat("(", 1<<12) + "true" + strings.Repeat(")", 1<<12): "nested deeper",
		strings.Repeat("true;", 1<<14):                                   "longer than",
	} {
		_, err := parseRestriction(text, restrictedNames(), true)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%.60s: %v, not %q", text, err, why)
		}
	}
	if _, err := parseRestriction("::priority > 1", restrictedNames(), false); err == nil {
		t.Error("the restriction of an action was let speak of a priority")
	}
}

// TestRestrictionAnnotations checks that p4c's forms of annotations are accepted, and that other
// forms are refused.
func TestRestrictionAnnotations(t *testing.T) {
	for annotation, want := range map[string]string{
		`@entry_restriction("narrow == 1")`:               "narrow == 1",
		`@entry_restriction("narrow == 1;" "exact == 2")`: "narrow == 1;exact == 2",
		`@entry_restriction("// \"one\"\nnarrow == 1")`:   "// \"one\"\nnarrow == 1",
		`@action_restriction("of something else")`:        "",
		`@entry_restrictions("of another name")`:          "",
		`@entry_restriction(narrow == 1)`:                 "error",
		`@entry_restriction("narrow == 1" && true)`:       "error",
		`@entry_restriction("narrow == 1`:                 "error",
		`@entry_restriction()`:                            "error",
	} {
		rs, err := restrictionsOf("@entry_restriction", &p4cfg.Preamble{Name: "t", Annotations: []string{annotation}},
			restrictedNames())
		got := ""
		if err != nil {
			got = "error"
		} else if len(rs) > 0 {
			got = rs[0].text
		}
		if got != want {
			t.Errorf("%s: %q, %v", annotation, got, err)
		}
	}
}

// FuzzRestriction checks that parsing ends for any text, and that a parsed restriction can be
// evaluated.
func FuzzRestriction(f *testing.F) {
	for _, seed := range []string{"exact == 7 && !(ternary::mask != -1) -> ::priority > 0x10; true", "mac('00:11:22:33:44:55') < 1"} {
		f.Add(seed)
	}
	s := &Subject{Match: []target.FieldMatch{{Value: []byte{0, 7}}, {Value: []byte{10, 0}, PrefixLen: 8},
		{Value: []byte{0, 1}, Mask: []byte{0, 255}}, {Value: []byte{0, 3}, Mask: []byte{0, 9}}, {Value: []byte{255}}}}
	f.Fuzz(func(_ *testing.T, text string) {
		if met, err := parseRestriction(text, restrictedNames(), true); err == nil {
			met(s)
		}
	})
}
