package reference

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/netcraq/netcraq/internal/refpage"
)

// TestChart checks that the reference page has every value of the Helm chart that has a comment. A
// value without a comment must be below one with a comment.
func TestChart(t *testing.T) {
	const source = "cni-plugin/deploy/chart/values.yaml"
	text, err := os.ReadFile(root + "/" + source)
	if err != nil {
		t.Fatal(err)
	}
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	page.WriteString(refpage.Head("Values of the Helm chart", "`"+source+"`",
		"The chart refuses values that it does not know, by name. [Run it in Kubernetes](../kubernetes.md)\nsays how to install it."))
	page.WriteString("\n" + refpage.Row("value", "default", "meaning") + refpage.Row("---", "---", "---"))
	values := 0
	var write func(prefix string, mapping *yaml.Node)
	write = func(prefix string, mapping *yaml.Node) {
		for i := 0; i < len(mapping.Content); i += 2 {
			key, value := mapping.Content[i], mapping.Content[i+1]
			comment := strings.ReplaceAll(key.HeadComment, "# ", "")
			switch {
			case comment != "":
				values++
				page.WriteString(refpage.Row("`"+prefix+key.Value+"`", "`"+flow(t, value)+"`", comment))
			case value.Kind == yaml.MappingNode && len(value.Content) > 0:
				write(prefix+key.Value+".", value)
			default:
				t.Errorf("%s:%d: %s%s has no comment", source, key.Line, prefix, key.Value)
			}
		}
	}
	write("", file.Content[0])
	if values < 30 {
		t.Fatalf("only %d values were found in %s", values, source)
	}
	refpage.Check(t, root, "chart.md", page.String())
}

// flow formats a YAML value in one line.
func flow(t *testing.T, value *yaml.Node) string {
	t.Helper()
	var all func(n *yaml.Node)
	all = func(n *yaml.Node) {
		n.HeadComment, n.LineComment, n.FootComment = "", "", ""
		if n.Kind != yaml.ScalarNode {
			n.Style = yaml.FlowStyle
		}
		for _, c := range n.Content {
			all(c)
		}
	}
	all(value)
	b, err := yaml.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}
