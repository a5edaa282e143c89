package calls

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the transcripts in testdata")

// argument is one argument of a command. It has the form NAME, NAME=VALUE or NAME=(VALUE,...).
type argument struct {
	name   string
	values []string
}

var argumentOf = regexp.MustCompile(`([^\s=]+)(?:=(?:\(([^)]*)\)|(\S*)))?`)

// playTranscripts runs each file of testdata. A command is one line. After it come the line "----",
// the output that the command must print, and an empty line. Comments begin with #.
func playTranscripts(t *testing.T, begin func() (run func(t *testing.T, command string, args []argument) string)) {
	files, err := filepath.Glob("testdata/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			run := begin()
			var played strings.Builder
			for block := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n\n") {
				line, want, ok := strings.Cut(block+"\n", "\n----\n")
				if !ok { // The line is a comment.
					played.WriteString(block + "\n\n")
					continue
				}
				var args []argument
				for _, m := range argumentOf.FindAllStringSubmatch(line, -1) {
					a := argument{name: m[1]}
					if strings.Contains(m[0], "=") {
						a.values = strings.Split(m[2]+m[3], ",")
					}
					args = append(args, a)
				}
				got := run(t, args[0].name, args[1:])
				if got != want && !*rewrite {
					t.Errorf("%s\n%swant:\n%s", line, got, want)
				}
				played.WriteString(line + "\n----\n" + got + "\n")
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(strings.TrimSuffix(played.String(), "\n")), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
