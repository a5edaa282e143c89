package configfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

type values struct {
	switches int
	page     string
	after    time.Duration
	users    []string
	quiet    bool
}

func read(t *testing.T, text string, args ...string) (values, *File, string, error) {
	t.Helper()
	var v values
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	flags.IntVar(&v.switches, "switches", 3, "")
	flags.StringVar(&v.page, "page", "p", "")
	flags.DurationVar(&v.after, "after", time.Second, "")
	flags.StringSliceVar(&v.users, "users", nil, "")
	flags.BoolVar(&v.quiet, "quiet", false, "")
	flags.String("config", "", "")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Read(name, flags)
	return v, f, name, err
}

func TestRead(t *testing.T) {
	v, _, _, err := read(t, "# a comment\nswitches: 5\npage: none\nafter: 2s\nusers: [a, b]\nquiet: true\n", "--page", "mine")
	if err != nil {
		t.Fatal(err)
	}
	if v.switches != 5 || v.page != "mine" || v.after != 2*time.Second || strings.Join(v.users, "+") != "a+b" || !v.quiet {
		t.Errorf("%+v", v)
	}
	if v, _, _, err := read(t, "# only a comment\n"); err != nil || v.switches != 3 {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestMistakes: each error names the line and shows the right form.
func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"switches: 5\nswithces: 6\n":  `:2: there is no option "swithces"; the options are after, page, quiet, switches, users`,
		"\n\nswitches: many\n":        `:3: switches: "many": `,
		"switches: 4\nswitches: 5\n":  ":2: switches is set a second time, and before in line 1",
		"page: [a, b]\n":              ":1: page takes one value, not a list",
		"page: {a: b}\n":              ":1: page takes a value, not a mapping",
		"config: other.yaml\n":        `:1: there is no option "config"`,
		"switches 5\n":                ":1: write one option in a line, as NAME: VALUE",
		"page: \"unfinished\nmore: x": "c.yaml: yaml: ",
	} {
		if _, _, _, err := read(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Read("/nowhere", pflag.NewFlagSet("", pflag.ContinueOnError)); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
		t.Error(err)
	}
}

// TestLocate: if the command later finds an error in a flag that the file has set, the error names
// the line.
func TestLocate(t *testing.T) {
	_, f, name, err := read(t, "page: x\nswitches: 9\n")
	if err != nil {
		t.Fatal(err)
	}
	for said, want := range map[string]string{
		"--switches 9: pass 1 to 8": name + ":2: --switches 9: pass 1 to 8",
		"--after 2: no":             "--after 2: no",
		"something else":            "something else",
	} {
		if got := f.Locate(errors.New(said)); got.Error() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if f.Locate(nil) != nil || (*File)(nil).Locate(errors.New("--page: x")).Error() != "--page: x" {
		t.Error("an error was made, or changed")
	}
}
