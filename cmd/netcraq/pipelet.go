package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// pipelets is the file name of the program that runs pipelets. It is a separate program, because
// its SQL engine would make netcraq many times as large.
const pipelets = "netcraq-pipelets"

const pipeletHelp = `Check and run pipelets without Kubernetes, by the program netcraq-pipelets. It must be in the folder of this program, or on PATH. Arguments and flags are
those of netcraq-pipelets: check FILE..., explain FILE..., run FILE...`

func (c *cli) pipeletCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "pipelet COMMAND FILE...", Short: "Check and run pipelets without Kubernetes", Long: pipeletHelp,
		Example: `  netcraq pipelet check orders.yaml
  netcraq pipelet run orders.yaml`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			program, err := findPipelets()
			if err != nil {
				return err
			}
			_, err = c.run(cmd.Context(), append([]string{program}, args...), nil)
			return err
		},
	}
	cmd.Flags().SetInterspersed(false) // flags after COMMAND belong to the program that runs pipelets
	return cmd
}

// findPipelets searches for the program that runs pipelets. It looks next to this program and on
// PATH.
func findPipelets() (string, error) {
	if own, err := os.Executable(); err == nil {
		next := filepath.Join(filepath.Dir(own), pipelets)
		if info, err := os.Stat(next); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return next, nil
		}
	}
	if found, err := exec.LookPath(pipelets); err == nil {
		return found, nil
	}
	return "", errors.New("found no " + pipelets + " next to this program or on PATH. docs/pipelets.md says how to get it")
}
