package ebpf

import (
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the table of docs/switch.md anew")

// TestDocumentedSupport compares the table in docs/switch.md with the code.
func TestDocumentedSupport(t *testing.T) {
	const file, begin, end = "../../docs/switch.md", "<!-- supported: begin -->\n",
		"<!-- supported: end -->\n"
	var table strings.Builder
	table.WriteString("| construct | in the kernel |\n| --- | --- |\n")
	for _, s := range Supported() {
		how := s.How
		if how == "" {
			how = "**refused**"
		}
		table.WriteString("| " + s.Construct + " | " + how + " |\n")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", file)
	}
	if have == table.String() {
		return
	}
	if !*update {
		t.Fatalf("the table in %s is not what the code says; run this test with -update", file)
	}
	if err := os.WriteFile(file, []byte(before+begin+table.String()+end+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
