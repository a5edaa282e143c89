package translate

import (
	"fmt"
	"strings"
	"testing"

	p4cfg "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"
)

// TestTypesWithoutEnd checks that a P4Info is refused with an explanation if its types contain
// themselves, or contain each other very often.
func TestTypesWithoutEnd(t *testing.T) {
	const in = `{ name: "a" type_spec { struct { name: "%s" } } }`
	structs := func(name, members string) string {
		return fmt.Sprintf(`structs { key: %q value { %s } }`, name, members)
	}
	var doubled strings.Builder
	for i := range 40 { // a short text that describes more than a billion members
		member := fmt.Sprintf("members "+in, fmt.Sprint("s", i+1))
		doubled.WriteString(structs(fmt.Sprint("s", i), member+member))
	}
	doubled.WriteString(structs("s40", ""))
	for name, text := range map[string]string{
		"a struct in itself": structs("s0", fmt.Sprintf("members "+in, "s0")),
		"two in each other":  structs("s0", fmt.Sprintf("members "+in, "s1")) + structs("s1", fmt.Sprintf("members "+in, "s0")),
		"many times":         doubled.String(),
		"a new type of itself": structs("s0", `members { name: "a" type_spec { new_type { name: "n" } } }`) +
			`new_types { key: "n" value { original_type { new_type { name: "n" } } } }`,
	} {
		t.Run(name, func(t *testing.T) {
			var names p4cfg.P4TypeInfo
			if err := prototext.Unmarshal([]byte(text), &names); err != nil {
				t.Fatal(err)
			}
			spec := &p4cfg.P4DataTypeSpec{TypeSpec: &p4cfg.P4DataTypeSpec_Struct{Struct: &p4cfg.P4NamedType{Name: "s0"}}}
			if _, err := resolveType(&names, spec); err == nil || !strings.Contains(err.Error(), "contains itself") {
				t.Error(err)
			}
		})
	}
}
