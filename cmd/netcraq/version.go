package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/api/buildinfo"
)

func (c *cli) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the versions of this command and of the node API's server",
		Long: `Print the version, the commit and the toolchain of this command, and the version of the node API's
server if one answers. A warning says if the two are further apart than is tested: consecutive minor
releases work together.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			i := buildinfo.Get()
			server, node := c.serverVersion(cmd.Context())
			if far(i.Version, server) {
				fmt.Fprintf(c.std.Err, "netcraq: this command is %s and the server is %s. Only consecutive minor releases are tested together\n",
					i.Version, server)
			}
			if c.json() {
				return json.NewEncoder(c.out()).Encode(struct {
					buildinfo.Info
					Server string `json:"server,omitempty"`
					Node   string `json:"node,omitempty"`
				}{i, server, node})
			}
			fmt.Fprintln(c.out(), "netcraq", i)
			if server != "" {
				fmt.Fprintf(c.out(), "server  %s, node %s\n", server, node)
			}
			return nil
		},
	}
}

// serverVersion asks the node API's server for its name and version, and for its node. Both are ""
// if no server answers.
func (c *cli) serverVersion(ctx context.Context) (server, node string) {
	cl, err := c.connect(ctx)
	if err != nil {
		return "", ""
	}
	defer cl.Close(ctx)
	info := cl.Info()
	return info.Server, info.Node
}

// far reports whether two versions are further apart than the tested distance. Each version is at
// the end of a text. A server of an early release sends a text without a version, which is not far.
func far(own, server string) bool {
	a, ok := minor(own)
	b, ok2 := minor(server)
	return ok && ok2 && (a[0] != b[0] || a[1]-b[1] > 1 || b[1]-a[1] > 1)
}

// minor parses the version at the end of a text. It returns the major and the minor number.
func minor(text string) (numbers [2]int, ok bool) {
	_, err := fmt.Sscanf(text[strings.LastIndex(text, " ")+1:], "%d.%d.", &numbers[0], &numbers[1])
	return numbers, err == nil
}
