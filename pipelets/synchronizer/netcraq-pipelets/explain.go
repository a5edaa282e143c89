package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	api "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/operator"
	"github.com/netcraq/netcraq/pipelets/synchronizer/plan"
	"github.com/netcraq/netcraq/pipelets/synchronizer/run"
)

// explain is the command that says a plan.
func explain() *cobra.Command {
	output, kubeconfig, cluster, replicas := "text", "", false, 0
	c := &cobra.Command{
		Use:   "explain [FILE...]",
		Short: "says which workers pipelets need, what they share, and where they run",
		Long: "Says which workers the pipelets of files need, and which of them share a reader and a flow;\n" +
			"with --replicas also how an operator's replicas would share them. With --cluster, instead of\n" +
			"files, the Pipelets of a Kubernetes cluster, and which replica each is assigned to.",
		RunE: func(c *cobra.Command, files []string) (err error) {
			var all []api.Pipelet
			switch {
			case (len(files) > 0) == cluster:
				return errors.New("either files are given, or --cluster")
			case cluster && replicas > 0:
				return errors.New("--replicas is for files: a cluster's replicas are what they are")
			case replicas < 0 || replicas > 1000:
				return errors.New("--replicas: 0 to 1000")
			case cluster:
				config, err := kubernetes(kubeconfig)
				if err != nil {
					return err
				}
				if all, err = operator.List(c.Context(), config); err != nil {
					return err
				}
			default:
				if all, err = run.Load(c.Context(), files); err != nil {
					return err
				}
			}
			var names []string
			for n := range replicas {
				names = append(names, fmt.Sprintf("replica %d", n+1))
			}
			to := plan.Spread(all, names, true)
			for i := range all {
				if on := to[all[i].Namespace+"/"+all[i].Name]; on != "" {
					all[i].Status.Assigned = on
				}
			}
			switch output {
			case "text":
				return plan.Print(c.OutOrStdout(), plan.Readers(all))
			case "json":
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(plan.Readers(all))
			}
			return fmt.Errorf("--output %q: it is text or json", output)
		},
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", output, "text or json")
	f.BoolVar(&cluster, "cluster", false, "explain the Pipelets of a Kubernetes cluster")
	f.StringVar(&kubeconfig, "kubeconfig", "", "how to reach it (default: as kubectl does)")
	f.IntVar(&replicas, "replicas", 0, "say how so many replicas of an operator would share them")
	return c
}
