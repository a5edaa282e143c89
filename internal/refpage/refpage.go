// Package refpage maintains the generated pages of docs/reference. A test generates a page from the
// code, and fails if the committed page differs. make generate writes the pages.
package refpage

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the pages of docs/reference anew")

// Check fails the test unless a page of docs/reference has this text.
func Check(t testing.TB, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, "docs", "reference", name)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(is) != text {
		t.Errorf("docs/reference/%s differs from the code. Run make generate, and commit the page", name)
	}
}

// Head returns the beginning of a generated page.
func Head(title, source, intro string) string {
	return "<!-- Code generated from " + source + " by make generate; DO NOT EDIT. -->\n\n# " + title + "\n\n" + intro + "\n"
}

// Row returns a row of a Markdown table. It escapes bars in cells.
func Row(cells ...string) string {
	for i, c := range cells {
		cells[i] = strings.ReplaceAll(strings.Join(strings.Fields(c), " "), "|", `\|`)
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// Paragraph wraps a text at 100 columns.
func Paragraph(text string) string {
	var out strings.Builder
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column > 0 && column+1+len(word) > 100:
			out.WriteByte('\n')
			column = 0
		case column > 0:
			out.WriteByte(' ')
			column++
		}
		out.WriteString(word)
		column += len(word)
	}
	return out.String() + "\n"
}
