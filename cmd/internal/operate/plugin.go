package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// pluginName is the file name of this program as a kubectl plugin. kubectl searches the PATH for
// it.
const pluginName = "kubectl-netcraq"

// isPlugin reports whether argv0 is the plugin's name.
func isPlugin(argv0 string) bool {
	return strings.TrimSuffix(filepath.Base(argv0), ".exe") == pluginName
}

// plugin runs commands in a cluster: it uses kubectl to run them in an agent's container.
type plugin struct {
	kubectl    string // path of kubectl
	kubeconfig string
	context    string
	namespace  string
	node       string
}

// agentsLabel selects all agents. leadsLabel selects the agents on nodes where a controller may
// run.
const (
	agentsLabel = "app.kubernetes.io/name=netcraq-agent"
	leadsLabel  = agentsLabel + ",app.kubernetes.io/component=control-plane"
)

const pluginHelp = `kubectl netcraq runs netcraqctl in the container of one of the cluster's agents, through kubectl. Whoever may exec there may use the controller. By default, the agent is on a
control-plane node. --node names another node, which doctor then checks. With --admin or --server (or $NETCRAQ_ADMIN), the command runs on this machine, as netcraqctl does.

`

func (p *plugin) flags(f *pflag.FlagSet) {
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "kubectl's `FILE` with the address of the API server")
	f.StringVar(&p.context, "context", "", "`CONTEXT` of the --kubeconfig")
	f.StringVar(&p.namespace, "namespace", "netcraq-system", "`NAMESPACE` of the agents")
	f.StringVar(&p.node, "node", "", "run the command in the agent of this `NODE` (default: a ready control-plane node)")
}

// pluginFlags are the plugin's own flags. The command in the container does not have them.
var pluginFlags = []string{"kubeconfig", "context", "namespace", "node"}

// arguments removes the plugin's own flags from a command line that has already been parsed.
func (p *plugin) arguments(args []string) (out []string) {
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			return append(out, args[i:]...)
		}
		name, isLong := strings.CutPrefix(a, "--")
		name, _, inline := strings.Cut(name, "=")
		switch {
		case isLong && slices.Contains(pluginFlags, name):
			if !inline {
				i++
			}
		default:
			out = append(out, a)
		}
	}
	return out
}

// run runs the command in an agent's container, and returns its exit code. If the command prints
// the page's link, run explains how to follow it from here.
func (p *plugin) run(ctx context.Context, args []string, std Streams, page bool) (int, error) {
	for _, a := range args {
		if strings.HasPrefix(a, "@") && a != "@-" {
			return 0, usageError{fmt.Errorf("%s would be a file in the agent's container: give the value on standard input, as @-", a)}
		}
	}
	pod, err := p.pod(ctx)
	if err != nil {
		return 0, err
	}
	cmd := p.command(ctx, append([]string{"exec", "-i", "-n", p.namespace, pod, "-c", "agent", "--", "netcraqctl"}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = std.In, std.Out, std.Err
	err = cmd.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) && ended.ExitCode() > 0 {
		return ended.ExitCode(), nil // the command has already printed its message
	}
	if err != nil {
		return 0, fmt.Errorf("running kubectl: %w", err)
	}
	if page {
		fmt.Fprintf(std.Err, "the page is on that node: kubectl -n %s port-forward %s 20036 brings it here\n", p.namespace, pod)
	}
	return exitOK, nil
}

// pod returns the name of an agent's pod in which to run the command.
func (p *plugin) pod(ctx context.Context) (string, error) {
	args := []string{"get", "pods", "-n", p.namespace, "-l", leadsLabel}
	what := "on a control-plane node"
	if p.node != "" {
		args = []string{"get", "pods", "-n", p.namespace, "-l", agentsLabel, "--field-selector", "spec.nodeName=" + p.node}
		what = "on the node " + p.node
	}
	args = append(args, "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
	var errs strings.Builder
	cmd := p.command(ctx, args...)
	cmd.Stderr = &errs
	found, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("looking for an agent in the namespace %s: kubectl: %s: %w", p.namespace, strings.TrimSpace(errs.String()), err)
	}
	first := ""
	for line := range strings.Lines(string(found)) {
		name, ready, _ := strings.Cut(strings.TrimSpace(line), " ")
		if ready == "True" {
			return name, nil
		}
		if first == "" {
			first = name
		}
	}
	if first == "" {
		return "", fmt.Errorf("no agent runs %s, in the namespace %s: is NetCRAQ installed there? --namespace gives another one, --node another node", what, p.namespace)
	}
	return first, nil // no pod is ready, but doctor must work in such a pod, too
}

// command is kubectl with the options that select the cluster.
func (p *plugin) command(ctx context.Context, args ...string) *exec.Cmd {
	var which []string
	if p.kubeconfig != "" {
		which = append(which, "--kubeconfig", p.kubeconfig)
	}
	if p.context != "" {
		which = append(which, "--context", p.context)
	}
	cmd := exec.CommandContext(ctx, p.kubectl, append(which, args...)...)
	cmd.Env = os.Environ()
	return cmd
}
