package bmv2json

import "strings"

// SplitFormat splits the format string of a log_msg at its placeholders. The placeholder {} stands
// for the next value. \{ and \} stand for braces in the output.
func SplitFormat(f string) []string {
	parts := []string{""}
	for i := 0; i < len(f); i++ {
		last := &parts[len(parts)-1]
		switch {
		case f[i] == '\\' && i+1 < len(f) && (f[i+1] == '{' || f[i+1] == '}'):
			i++
			*last += string(f[i])
		case f[i] == '{' && strings.IndexByte(f[i:], '}') > 0:
			i += strings.IndexByte(f[i:], '}')
			parts = append(parts, "")
		default:
			*last += string(f[i])
		}
	}
	return parts
}
