package main

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/buildinfo"
)

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version, the commit and the toolchain of this command",
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			i := buildinfo.Get()
			if !c.json() {
				_, err := fmt.Fprintln(c.out(), "netcraq", i)
				return err
			}
			out := map[string]any{"version": i.Version, "commit": i.Commit, "modified": i.Modified, "go": i.Go,
				"platform": i.Platform}
			if !i.Date.IsZero() {
				out["date"] = i.Date.UTC().Format(time.RFC3339)
			}
			return json.NewEncoder(c.out()).Encode(out)
		},
	}
}
