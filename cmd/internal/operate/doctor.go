package operate

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/netcraq/netcraq/cmd/internal/doctor"
)

// unwell is doctor's error after it has found problems.
type unwell struct{ problems int }

func (e unwell) Error() string {
	return fmt.Sprintf("%s: what to do is above", plural(e.problems, "problem"))
}

const doctorHelp = `Check this machine for a switch, an agent, a controller or a gateway, and print what is wrong and how to fix it.

The command changes nothing. It reports checks that need more permissions as "unseen"; root can run all of them. In an agent's container it checks the node's kernel,
interfaces, ports and processes, and the files that are mounted there.

%s

Levels: ok; note (good to know); unseen; warning (it works, but not as well, or not for long); problem (NetCRAQ, or a part of it, does not work like this).
The exit code is 5 if there is a problem, otherwise 0.`

// doctorCommand checks the machine that it runs on.
func (c *cli) doctorCommand() *cobra.Command {
	var o doctor.Options
	var files []string
	var quiet bool
	var lines strings.Builder
	for _, check := range doctor.Checks() {
		fmt.Fprintf(&lines, "  %-13s %s\n", check[0], check[1])
	}
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check this machine and say what to fix",
		Long: fmt.Sprintf(doctorHelp, strings.TrimRight(lines.String(), "\n")),
		Example: `  netcraqctl doctor
  netcraqctl doctor --check hooks,interfaces --interface eth0
  netcraqctl doctor --etcd https://192.0.2.1:2379 --etcd-cacert ca.crt \
    --certificate server.crt=etcd.example
  kubectl netcraq doctor --node node2`,
		RunE: func(cmd *cobra.Command, _ []string) error {
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
			if err := c.show(report, func(w io.Writer) { printReport(w, report, quiet) }); err != nil {
				return err
			}
			if n := report.Count(doctor.Problem); n > 0 {
				return unwell{n}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Checks, "check", nil, "run only the checks with these `NAMES`")
	f.StringSliceVar(&o.Interfaces, "interface", nil, "check only the interfaces with these `NAMES` (default: all but lo)")
	f.StringSliceVar(&o.Etcd, "etcd", nil, "compare the clocks of the etcd members at these client `URLS` with this machine's")
	f.StringVar(&o.EtcdCA, "etcd-cacert", "", "`FILE` with the CA certificates that must have signed etcd's certificate (PEM)")
	f.StringVar(&o.EtcdCert, "etcd-cert", "", "`FILE` with the certificate to present to etcd (PEM)")
	f.StringVar(&o.EtcdKey, "etcd-key", "", "`FILE` with the private key of --etcd-cert (PEM)")
	f.StringSliceVar(&files, "certificate", nil, "more certificates to check, besides kubeadm's: `FILE`, or FILE=NAME to check the name or address, too")
	f.StringSliceVar(&o.ServedCertificates, "tls-server", nil, "TLS servers to check, as `HOST:PORT` (default: the agent, at this machine's addresses)")
	f.BoolVarP(&quiet, "quiet", "q", false, "leave out checks with the level ok")
	return cmd
}

// printReport prints a line for each finding, followed by the remedy.
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
		fmt.Fprintf(w, "%-7s  %-*s  %s%s\n", level, width, f.Check, subject, f.Message)
		if f.Advice != "" {
			fmt.Fprintf(w, "%-7s  %-*s  -> %s\n", "", width, "", f.Advice)
		}
	}
	said := []string{plural(r.Count(doctor.Problem), "problem"), plural(r.Count(doctor.Warning), "warning")}
	if n := r.Count(doctor.Unseen); n > 0 {
		said = append(said, fmt.Sprintf("%d not looked at", n))
	}
	fmt.Fprintf(w, "%s: %s\n", r.Host, strings.Join(said, ", "))
}
