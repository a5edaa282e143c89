package helptext

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFit(t *testing.T) {
	long := strings.Repeat("many words ", 30)
	sub := &cobra.Command{Use: "sub", Short: "below", Long: "A heading:\n  kept as it is\n\n" + long,
		Run: func(*cobra.Command, []string) {}}
	sub.Flags().String("flag", "", strings.ReplaceAll(long, "many words many words", "many words\nmany words"))
	root := &cobra.Command{Use: "root", Long: "Short lines\nthat are broken on purpose."}
	root.PersistentFlags().Int("global", 1, long)
	root.AddCommand(sub)
	Fit(root)
	for _, args := range []string{"--help", "sub --help"} {
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(strings.Fields(args))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.SplitSeq(out.String(), "\n") {
			if len(line) > Width {
				t.Errorf("%s: %d columns: %q", args, len(line), line)
			}
		}
		if n := strings.Count(strings.Join(strings.Fields(out.String()), " "), "many words"); args == "sub --help" && n != 90 {
			t.Errorf("%s has %d of 90 words: %s", args, n, out.String())
		}
		want := map[string]string{"--help": "Short lines\nthat are broken", "sub --help": "A heading:\n  kept as it is\n\nmany"}[args]
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s does not have %q: %s", args, want, out.String())
		}
	}
}
