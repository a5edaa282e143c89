package main

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/operate"
	"github.com/netcraq/netcraq/internal/refpage"
)

// TestReferencePage checks that docs/reference/cli.md contains every command with its help.
func TestReferencePage(t *testing.T) {
	var page strings.Builder
	page.WriteString(refpage.Head("The command netcraq", "the commands of `cmd/netcraq`",
		"Every command, in the order of the alphabet. All take the [flags of netcraq](#netcraq), and\n"+
			"`netcraq COMMAND --help` prints the same text."))
	root, commands := commandTree(t), 0
	var write func(cmd *cobra.Command)
	write = func(cmd *cobra.Command) {
		commands++
		text := cmd.Long
		if text == "" {
			text = cmd.Short + "."
		}
		usage := cmd.UsageString()
		if cmd != root {
			usage, _, _ = strings.Cut(usage, "\nGlobal Flags:\n")
		}
		page.WriteString("\n## " + cmd.CommandPath() + "\n\n```text\n" + text + "\n\n" + strings.TrimSpace(usage) + "\n```\n")
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && sub.Name() != "help" && cmd.Name() != "completion" {
				write(sub)
			}
		}
	}
	write(root)
	if commands < 40 {
		t.Errorf("only %d commands were found", commands)
	}
	refpage.Check(t, "../..", "cli.md", page.String())
}

func commandTree(t *testing.T) (root *cobra.Command) {
	t.Helper()
	env := func(string) string { return "" }
	p := program(env)
	complete := p.Complete
	p.Complete = func(cmd *cobra.Command, std operate.Streams) func(error) int {
		root = cmd
		return complete(cmd, std)
	}
	std := operate.Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}
	if code := p.Run(t.Context(), []string{"netcraq", "--help"}, std, env); code != 0 {
		t.Fatalf("--help: exit code %d", code)
	}
	return root
}
