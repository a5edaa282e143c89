package placement

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Printable returns a key as readable text. It writes a backslash as \\, and writes control
// characters and bytes that are not UTF-8 as \xNN. The text is valid UTF-8, and different keys give
// different texts.
func Printable(key string) string {
	if !strings.ContainsFunc(key, func(r rune) bool {
		return r < ' ' || r == '\\' || r == 0x7f ||
			r == utf8.RuneError
	}) {
		return key
	}
	var b strings.Builder
	for i := 0; i < len(key); {
		r, size := utf8.DecodeRuneInString(key[i:])
		switch {
		case r == '\\':
			b.WriteString(`\\`)
		case r < ' ' || r == 0x7f || r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, key[i])
		default:
			b.WriteString(key[i : i+size])
		}
		i += size
	}
	return b.String()
}

// ParsePrintable returns the key for a text that Printable has made.
func ParsePrintable(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case rest[0] != '\\':
			b.WriteByte(rest[0])
		case strings.HasPrefix(rest, `\\`):
			b.WriteByte('\\')
			i++
		case strings.HasPrefix(rest, `\x`) && len(rest) >= 4:
			n, err := strconv.ParseUint(rest[2:4], 16, 8)
			if err != nil {
				return "", fmt.Errorf(`%q: \x is to be followed by two hexadecimal digits`, text)
			}
			b.WriteByte(byte(n))
			i += 3
		default:
			return "", fmt.Errorf(`%q: a backslash in a key is written as \\, a byte as \xNN`, text)
		}
	}
	return b.String(), nil
}
