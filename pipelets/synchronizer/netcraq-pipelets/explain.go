package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/operator"
	"github.com/netcraq/netcraq/pipelets/synchronizer/plan"
	"github.com/netcraq/netcraq/pipelets/synchronizer/run"
)

// explain returns the command that prints a plan.
func explain() *cobra.Command {
	output, kubeconfig, cluster, replicas := "text", "", false, 0
	c := &cobra.Command{
		Use:   "explain [FILE...]",
		Short: "Show the workers of pipelets, what they share, and where they run",
		Long: "Show the workers that the pipelets of files need, and the readers and flows that they share.\n" +
			"With --replicas, show how the replicas of an operator would divide the workers. With --cluster,\n" +
			"show the Pipelets of a Kubernetes cluster instead, and the replica of each.",
		RunE: func(c *cobra.Command, files []string) (err error) {
			var all []pipeletapi.Pipelet
			switch {
			case (len(files) > 0) == cluster:
				return errors.New("either files are given, or --cluster")
			case cluster && replicas > 0:
				return errors.New("--replicas is only for files: with --cluster the operator's replicas are used")
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
	f.StringVarP(&output, "output", "o", output, "output format: text or json")
	f.BoolVar(&cluster, "cluster", false, "explain the Pipelets of a Kubernetes cluster")
	f.StringVar(&kubeconfig, "kubeconfig", "", "`FILE` with the address of the cluster's API server (default: as for kubectl)")
	f.IntVar(&replicas, "replicas", 0, "show the division among this `NUMBER` of operator replicas")
	return c
}
