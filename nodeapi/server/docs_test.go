package server

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// drawn matches random values in answers. They differ between the server and the documentation.
var drawn = regexp.MustCompile(`"(lease|token|incarnation|generation|file)":"([^"]+)"`)

// varies matches fields that differ from run to run: times, the remaining time of a lease, and the
// holder of a lease.
var varies = regexp.MustCompile(`"(?:time|leftMs)":\d+|"holder":"[^"]*"`)

// TestDocs checks that the examples in docs/node-api.md are correct, and that each function has an
// example.
func TestDocs(t *testing.T) {
	text, err := os.ReadFile("../../docs/node-api.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	sessions := regexp.MustCompile("(?s)```session\n(.*?)```").FindAllSubmatch(text, -1)
	for _, session := range sessions {
		_, path := start(t, Config{Name: "netcraq-sidecar 0.1.0", Node: "n1"})
		l := dial(t, path)
		real := map[string]string{} // maps random values in the documentation to the values of the server
		var want []string
		check := func() {
			t.Helper()
			var got []string
			for range want {
				got = append(got, l.receive())
			}
			for _, w := range want {
				if !matches(w, got, real) {
					t.Errorf("the page says\n     %s\nanswered\n     %s", w, strings.Join(got, "\n     "))
				}
			}
			want = nil
		}
		for row := range strings.Lines(string(session[1])) {
			row = strings.TrimSuffix(row, "\n")
			if answer, ok := strings.CutPrefix(row, "< "); ok {
				want = append(want, answer)
				continue
			}
			request, ok := strings.CutPrefix(row, "> ")
			if !ok {
				t.Fatalf("%q is neither sent nor answered", row)
			}
			check()
			for said, is := range real {
				request = strings.ReplaceAll(request, `"`+said+`"`, `"`+is+`"`)
			}
			for name := range functions {
				if strings.Contains(request, `"func":"`+name+`"`) {
					shown[name] = true
				}
			}
			l.send(request)
		}
		check()
	}
	for name := range functions {
		if !shown[name] {
			t.Errorf("%s has no example", name)
		}
	}
}

// matches reports whether one of the answers in got equals the documented answer. It records the
// random values.
func matches(want string, got []string, real map[string]string) bool {
	want = varies.ReplaceAllString(want, `"varies":0`)
	for _, g := range got {
		g = varies.ReplaceAllString(g, `"varies":0`)
		said, is := drawn.FindAllStringSubmatch(want, -1), drawn.FindAllStringSubmatch(g, -1)
		if len(said) != len(is) {
			continue
		}
		learned, now := map[string]string{}, want
		for i := range said {
			learned[said[i][2]] = is[i][2]
			now = strings.ReplaceAll(now, `"`+said[i][2]+`"`, `"`+is[i][2]+`"`)
		}
		for before, is := range real { // replace random values in lists, which drawn does not match
			now = strings.ReplaceAll(now, `"`+before+`"`, `"`+is+`"`)
		}
		if now != g {
			continue
		}
		for a, b := range learned {
			if before, ok := real[a]; ok && before != b {
				return false
			}
			real[a] = b
		}
		return true
	}
	return false
}
