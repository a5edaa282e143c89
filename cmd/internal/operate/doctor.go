package operate

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/doctor"
	"github.com/netcraq/netcraq/cmd/internal/doctor/cluster"
)

// unwell is the error of the doctor command after it has found problems.
type unwell struct{ problems int }

func (e unwell) Error() string {
	return fmt.Sprintf("%s: what to do is above", plural(e.problems, "problem"))
}

const doctorHelp = `Check this machine for a switch, an agent, a controller or a gateway, and print what is wrong and how to fix it.

The command changes nothing. It reports checks that need more permissions as "unseen"; root can run all of them. In an agent's container it checks the node's kernel,
interfaces, ports and processes, and the files that are mounted there.

%s

With --cluster, the command checks NetCRAQ in a Kubernetes cluster instead, through the API server of a kubeconfig:

%s

Levels: ok; note (good to know); unseen; warning (it works, but not as well, or not for long); problem (NetCRAQ, or a part of it, does not work).
The exit code is 5 if there is a problem, otherwise 0.`

// doctorCommand checks the machine that it runs on.
func (c *cli) doctorCommand() *cobra.Command {
	var o doctor.Options
	var in cluster.Options
	var files []string
	var quiet, ofCluster bool
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this machine, or a cluster, and say what to fix",
		Long: fmt.Sprintf(doctorHelp, lines(doctor.Checks()), lines(cluster.Checks())),
		Example: `  netcraqctl doctor
  netcraqctl doctor --check hooks,interfaces --interface eth0
  netcraqctl doctor --etcd https://192.0.2.1:2379 --etcd-cacert ca.crt \
    --certificate server.crt=etcd.example
  netcraqctl doctor --cluster
  kubectl netcraq doctor --node node2`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := oneOfBoth(cmd, ofCluster); err != nil {
				return usageError{err}
			}
			if ofCluster {
				in.Checks, in.Timeout = o.Checks, c.timeout
				return c.doctorCluster(cmd.Context(), in, quiet)
			}
			for _, s := range files {
				f, err := doctor.ParseCertificate(s)
				if err != nil {
					return usageError{fmt.Errorf("--certificate: %w", err)}
				}
				o.Certificates = append(o.Certificates, f)
			}
			if (o.EtcdCert == "") != (o.EtcdKey == "") {
				return usageError{fmt.Errorf("--etcd-cert and --etcd-key go together")}
			}
			if c.adminGiven {
				o.Admin = c.admin
			}
			o.TokenFile, o.Timeout = c.tokenFile, c.timeout
			report, err := doctor.Run(cmd.Context(), o)
			if err != nil {
				return usageError{err}
			}
			return c.showReport(report, quiet)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&ofCluster, clusterFlag, false, "check NetCRAQ in a Kubernetes cluster")
	f.StringSliceVar(&o.Checks, "check", nil, "run only the checks with these `NAMES`")
	f.StringSliceVar(&o.Interfaces, "interface", nil, "check only the interfaces with these `NAMES` (default: all but lo)")
	f.StringSliceVar(&o.Etcd, "etcd", nil, "compare the clocks of the etcd members at these client `URLS` with this machine's")
	f.StringVar(&o.EtcdCA, "etcd-cacert", "", "`FILE` with the CA certificates that must have signed etcd's certificate (PEM)")
	f.StringVar(&o.EtcdCert, "etcd-cert", "", "`FILE` with the certificate to present to etcd (PEM)")
	f.StringVar(&o.EtcdKey, "etcd-key", "", "`FILE` with the private key of --etcd-cert (PEM)")
	f.StringSliceVar(&files, "certificate", nil, "certificates to check in addition to kubeadm's: `FILE`, or FILE=NAME to check the name or address, too")
	f.StringSliceVar(&o.ServedCertificates, "tls-server", nil, "TLS servers to check, as `HOST:PORT` (default: the agent, at this machine's addresses)")
	if c.plugin == nil { // the plugin has these flags for all commands
		f.StringVar(&in.Namespace, "system-namespace", cluster.NamespaceDefault, "`NAMESPACE` of the cluster's agents")
		f.StringVar(&in.Kubeconfig, "kubeconfig", "", "`FILE` with the address of the API server (default: as kubectl finds it)")
		f.StringVar(&in.Context, "context", "", "`CONTEXT` of the kubeconfig (default: its current one)")
	}
	f.BoolVarP(&quiet, "quiet", "q", false, "leave out checks with the level ok")
	return cmd
}

// lines formats the checks as one line each.
func lines(checks [][2]string) string {
	var out []string
	for _, check := range checks {
		out = append(out, fmt.Sprintf("  %-13s %s", check[0], check[1]))
	}
	return strings.Join(out, "\n")
}

// clusterFlag is the flag that makes doctor check a cluster.
const clusterFlag = "cluster"

// oneOfBoth returns an error if flags for checking a machine and flags for checking a cluster are
// mixed. --cluster selects the cluster.
func oneOfBoth(cmd *cobra.Command, ofCluster bool) error {
	of := []string{"interface", "etcd", "etcd-cacert", "etcd-cert", "etcd-key", "certificate", "tls-server"}
	why := "is for this machine, and not for --cluster"
	if !ofCluster {
		of, why = []string{"system-namespace", "kubeconfig", "context"}, "is for --cluster: pass that, too"
	}
	for _, name := range of {
		if cmd.LocalNonPersistentFlags().Changed(name) {
			return fmt.Errorf("--%s %s", name, why)
		}
	}
	return nil
}

// doctorCluster checks a cluster.
func (c *cli) doctorCluster(ctx context.Context, in cluster.Options, quiet bool) error {
	if c.plugin != nil {
		in.Kubeconfig, in.Context, in.Namespace = c.plugin.kubeconfig, c.plugin.context, c.plugin.namespace
	}
	report, err := cluster.Run(ctx, in)
	if err != nil {
		return err
	}
	return c.showReport(report, quiet)
}

// showReport prints a report. It returns an error if the report has a problem.
func (c *cli) showReport(report *doctor.Report, quiet bool) error {
	if err := c.show(report, func(w io.Writer) { printReport(w, report, quiet) }); err != nil {
		return err
	}
	if n := report.Count(doctor.Problem); n > 0 {
		return unwell{n}
	}
	return nil
}

// printReport prints a line for each finding, with the advice below it.
func printReport(w io.Writer, r *doctor.Report, quiet bool) {
	width := 0
	for _, f := range r.Findings {
		width = max(width, len(f.Check))
	}
	for _, f := range r.Findings {
		if quiet && (f.Level == doctor.OK || f.Level == doctor.Note) {
			continue
		}
		level := string(f.Level)
		if f.Level == doctor.Problem || f.Level == doctor.Warning {
			level = strings.ToUpper(level)
		}
		subject := f.Subject
		if subject != "" {
			subject += ": "
		}
		fmt.Fprintf(w, "%-7s  %-*s  %s%s\n", level, width, f.Check, visible(subject), visible(f.Message))
		if f.Advice != "" {
			fmt.Fprintf(w, "%-7s  %-*s  -> %s\n", "", width, "", visible(f.Advice))
		}
	}
	said := []string{plural(r.Count(doctor.Problem), "problem"), plural(r.Count(doctor.Warning), "warning")}
	if n := r.Count(doctor.Unseen); n > 0 {
		said = append(said, fmt.Sprintf("%d not looked at", n))
	}
	fmt.Fprintf(w, "%s: %s\n", visible(r.Host), strings.Join(said, ", "))
}

// visible makes a text safe for one line of a terminal. Findings quote texts of others, for example
// a pod's status. Such a text must neither control the terminal nor look like another finding, so
// visible escapes special characters as Go does.
func visible(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return text
	}
	quoted := strconv.Quote(text)
	return quoted[1 : len(quoted)-1]
}
