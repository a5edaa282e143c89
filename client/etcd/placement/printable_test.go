package placement

import (
	"testing"
	"unicode/utf8"
)

func FuzzPrintable(f *testing.F) {
	for _, k := range []string{"/registry/pods/a", "\x00\xff\\", `\x41`, "é\xc3", "\ufffd", ""} {
		f.Add(k)
	}
	f.Fuzz(func(t *testing.T, key string) {
		text := Printable(key)
		back, err := ParsePrintable(text)
		if err != nil || back != key || !utf8.ValidString(text) {
			t.Errorf("%q is written as %q, which is %q, %v", key, text, back, err)
		}
		if parsed, err := ParsePrintable(key); err == nil && utf8.ValidString(key) && Printable(parsed) == "" &&
			key != "" {
			t.Errorf("%q is read as nothing", key)
		}
	})
}
