package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/netcraq/netcraq/api/buildinfo"
)

// manCommand is the command that writes the manual pages. Packages of the program use it.
func (c *cli) manCommand() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", Short: "Write pages of the manual, one for each command, into FOLDER", Hidden: true,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := &doc.GenManHeader{Section: "1", Source: "NetCRAQ " + buildinfo.Version(), Manual: "NetCRAQ"}
			if date := buildinfo.Get().Date; !date.IsZero() {
				header.Date = &date // the default is $SOURCE_DATE_EPOCH or the current time
			}
			if err := doc.GenManTree(cmd.Root(), header, args[0]); err != nil {
				return fmt.Errorf("writing the manual: %w", err)
			}
			return nil
		},
	}
}
