// Package helptext fits a command's --help into a terminal's width, and adds --version.
package helptext

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/netcraq/netcraq/api/buildinfo"
)

// Width is the maximum width of help, in columns.
const Width = 80

// Fit makes a command and its current subcommands print help within [Width]. It wraps the texts of
// flags, and Long. Use, Short and Example must already fit. Fit also gives root the flag --version.
func Fit(root *cobra.Command) {
	root.Version = buildinfo.Get().String()
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	template := strings.ReplaceAll(root.UsageTemplate(), "Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", Width))
	root.SetUsageTemplate(strings.ReplaceAll(template, `Use "{{.CommandPath}} [command] --help" for more information about a command.`,
		`Run '{{.CommandPath}} COMMAND --help' for a command's options.`))
	root.InitDefaultHelpCmd()
	root.InitDefaultVersionFlag()
	root.Flags().Lookup("version").Usage = "print the version"
	fit(root)
}

func fit(c *cobra.Command) {
	c.Long = Fill(c.Long)
	c.InitDefaultHelpFlag()
	if help := c.Flags().Lookup("help"); help != nil {
		help.Usage = "print this help"
	}
	if c.Name() == "help" {
		c.Short = "Print the help of a command"
	}
	breakable := func(f *pflag.Flag) {
		f.Usage = strings.ReplaceAll(f.Usage, "\n", " ")
		if f.Value.Type() == "stringSlice" {
			f.DefValue = strings.ReplaceAll(strings.ReplaceAll(f.DefValue, ", ", ","), ",", ", ")
		}
	}
	c.Flags().VisitAll(breakable)
	c.PersistentFlags().VisitAll(breakable)
	for _, sub := range c.Commands() {
		fit(sub)
	}
}

// Fill wraps paragraphs that are wider than [Width]. It keeps lines that begin with a space, such
// as examples.
func Fill(text string) string {
	paragraphs := strings.Split(text, "\n\n")
	for i, p := range paragraphs {
		wide, indented := false, false
		for line := range strings.SplitSeq(p, "\n") {
			wide = wide || len([]rune(line)) > Width
			indented = indented || strings.HasPrefix(line, " ")
		}
		if wide && !indented {
			paragraphs[i] = fillParagraph(p)
		}
	}
	return strings.Join(paragraphs, "\n\n")
}

func fillParagraph(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) > Width:
			lines, line = append(lines, line), word
		default:
			line += " " + word
		}
	}
	return strings.Join(append(lines, line), "\n")
}
