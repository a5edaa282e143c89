package overlay

import "testing"

func TestCodeOf(t *testing.T) {
	for _, c := range []struct{ name, text, code string }{
		{"a comment after code", "\tx = 1 // one\n\treturn\n", "\tx = 1\n\treturn\n"},
		{"a comment of its own", "a()\n\t// then b\n\t// and no more\n\n\tb()\n", "a()\n\tb()\n"},
		{"a block", "f(a /* first */, b)", "f(a , b)"},
		{"no comment", "s := \"http://x\"\nr := `// y`\n", "s := \"http://x\"\nr := `// y`\n"},
		{"a directive", "//go:embed x\nvar x string // all of it\n", "//go:embed x\nvar x string\n"},
	} {
		if got := codeOf(c.text); got != c.code {
			t.Errorf("%s: %q, not %q", c.name, got, c.code)
		}
	}
}
