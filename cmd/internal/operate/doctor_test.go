package operate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/netcraq/netcraq/cmd/internal/doctor"
)

// start runs the program under this name, for example as a kubectl plugin.
func start(t *testing.T, name string, args ...string) (code int, out, complaint string) {
	t.Helper()
	var o, e bytes.Buffer
	code = Netcraqctl.Run(t.Context(), append([]string{name}, args...), Streams{strings.NewReader("in"), &o, &e},
		func(string) string { return "" })
	return code, o.String(), e.String()
}

// TestDoctor checks the report as text and as JSON, and the exit codes.
func TestDoctor(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "no.crt")
	code, out, complaint := start(t, "netcraqctl", "doctor", "--check", "certificates", "--certificate", missing)
	if code != exitUnwell || !strings.Contains(out, "PROBLEM  certificates  "+missing+": there is no such file\n") ||
		!strings.Contains(out, "-> give the file that is there") || !strings.Contains(complaint, "1 problem: what to do is above") {
		t.Errorf("with a problem: code %d\n%s%s", code, out, complaint)
	}
	code, out, complaint = start(t, "netcraqctl", "doctor", "-o", "json", "--check", "certificates", "--certificate", missing)
	var report doctor.Report
	err := json.Unmarshal([]byte(out), &report)
	if err != nil || code != exitUnwell || report.Count(doctor.Problem) != 1 || complaint != "" {
		t.Errorf("as JSON: code %d, %v\n%s%s", code, err, out, complaint)
	}
	if code, out, _ = start(t, "netcraqctl", "doctor", "--check", "limits"); code != exitOK || !strings.Contains(out, "limits") {
		t.Errorf("without a problem: code %d\n%s", code, out)
	}
	if _, out, _ = start(t, "netcraqctl", "doctor", "-q", "--check", "cgroups"); strings.Contains(out, "\nok ") || !strings.Contains(out, " 0 problems") {
		t.Errorf("quiet:\n%s", out)
	}
	for _, args := range [][]string{{"--check", "sorcery"}, {"--certificate", "="}, {"--etcd-cert", "x"}, {"more"}} {
		if code, _, complaint = start(t, "netcraqctl", append([]string{"doctor"}, args...)...); code != exitUsage || complaint == "" {
			t.Errorf("doctor %v: code %d, %s", args, code, complaint)
		}
	}
}

// TestDoctorCluster checks that netcraqctl and the kubectl plugin contact the API server of a
// kubeconfig. The plugin starts no kubectl for that.
func TestDoctorCluster(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(r.URL.Path, "/namespaces/lab/daemonsets") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind":"DaemonSetList","apiVersion":"apps/v1","metadata":{},"items":[]}`)
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "config")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"x","clusters":[{"name":"c","cluster":{"server":"` + server.URL +
		`"}}],"contexts":[{"name":"x","context":{"cluster":"c"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "PROBLEM  agents  NetCRAQ is not in the namespace lab: there is no DaemonSet of agents\n"
	for name, flag := range map[string]string{"netcraqctl": "--system-namespace", "/bin/kubectl-netcraq": "--namespace"} {
		asked := fakeKubectl(t, "", "0")
		code, out, complaint := start(t, name, "doctor", "--cluster", "--kubeconfig", file, flag, "lab", "--check", "agents")
		if code != exitUnwell || !strings.Contains(out, want) || !strings.Contains(out, server.URL+": 1 problem") || asked() != "" {
			t.Errorf("%s: code %d\n%s%s%s", name, code, out, complaint, asked())
		}
	}
	for _, c := range []struct{ args, says string }{
		{"--cluster --kubeconfig /nowhere", "Pass --kubeconfig FILE"},
		{"--cluster --kubeconfig " + file + " --check hooks", `there is no check "hooks" of a cluster`},
		{"--cluster --interface eth0", "--interface is for this machine, and not for --cluster"},
		{"--kubeconfig " + file, "--kubeconfig is for --cluster"},
		{"--check agents", `there is no check "agents"`},
	} {
		code, _, complaint := start(t, "netcraqctl", append([]string{"doctor"}, strings.Fields(c.args)...)...)
		if code == exitOK || code == exitUnwell || !strings.Contains(complaint, c.says) {
			t.Errorf("doctor %s: code %d, %s; want %s", c.args, code, complaint, c.says)
		}
	}
}

// fakeKubectl puts a fake kubectl on the PATH. It records its arguments, lists pods, and exits with
// code.
func fakeKubectl(t *testing.T, pods, code string) (asked func() string) {
	t.Helper()
	dir := t.TempDir()
	record := filepath.Join(dir, "asked")
	script := "#!/bin/sh\necho \"$*\" >> " + record + "\ncase \"$*\" in *\"get pods\"*) printf '" + pods + "'; exit 0;; esac\ncat; echo ran\nexit " + code + "\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		b, _ := os.ReadFile(record)
		return string(b)
	}
}

// TestPlugin runs the command as a kubectl plugin. The command then runs in an agent's container.
func TestPlugin(t *testing.T) {
	const name = "/usr/local/bin/kubectl-netcraq"
	asked := fakeKubectl(t, `agent-a False\nagent-b True\n`, "3")
	code, out, complaint := start(t, name, "--context", "east", "--namespace=other", "get", "/key", "-o", "json")
	if want := "--context east exec -i -n other agent-b -c agent -- netcraqctl get /key -o json\n"; !strings.HasSuffix(asked(), want) ||
		code != exitNotFound || out != "inran\n" || complaint != "" {
		t.Errorf("code %d, out %q, complaint %q, asked\n%swant %s", code, out, complaint, asked(), want)
	}
	if !strings.Contains(asked(), "--context east get pods -n other -l app.kubernetes.io/name=netcraq-agent,app.kubernetes.io/component=control-plane -o ") {
		t.Errorf("it asked for the agents by\n%s", asked())
	}

	asked = fakeKubectl(t, `agent-a False\n`, "0")
	if code, _, _ = start(t, name, "doctor", "--node", "node2"); code != exitOK || !strings.Contains(asked(), "--field-selector spec.nodeName=node2") ||
		!strings.HasSuffix(asked(), "exec -i -n netcraq-system agent-a -c agent -- netcraqctl doctor\n") {
		t.Errorf("of a node: code %d, asked\n%s", code, asked())
	}
	if _, _, complaint = start(t, name, "page"); !strings.Contains(complaint, "port-forward agent-a 20036") {
		t.Errorf("of the page it says %q", complaint)
	}

	asked = fakeKubectl(t, "", "0")
	for _, c := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{"chain", "show"}, exitError, "no agent runs on a control-plane node, in the namespace netcraq-system: is NetCRAQ installed there?"},
		{[]string{"chain", "show", "--node", "n9"}, exitError, "no agent runs on the node n9"},
		{[]string{"put", "/key", "@file"}, exitUsage, "as @-"},
		{[]string{"frobnicate"}, exitUsage, "unknown command"},
		{[]string{"get"}, exitUsage, "usage: kubectl netcraq get"},
	} {
		if code, _, complaint = start(t, name, c.args...); code != c.code || !strings.Contains(complaint, c.says) {
			t.Errorf("%v: code %d, says %q, want %d, %q", c.args, code, complaint, c.code, c.says)
		}
	}

	// A command that needs no cluster does not contact one.
	before := asked()
	for _, args := range [][]string{{}, {"--help"}, {"chain"}, {"doctor", "--admin", "unix:///nowhere", "--check", "limits"},
		{"--server", "127.0.0.1:1", "--timeout", "1ms", "get", "1"}} {
		_, out, complaint = start(t, name, args...)
		if asked() != before || out+complaint == "" {
			t.Errorf("%v asked the cluster, or said nothing:\n%s%s", args, out, complaint)
		}
	}
	if _, out, _ = start(t, name, "--help"); !strings.Contains(out, "kubectl netcraq [command]") || !strings.Contains(out, "--context") || strings.Contains(out, "  netcraqctl get") {
		t.Errorf("its help:\n%s", out)
	}
	if _, out, _ = start(t, "netcraqctl", "--help"); strings.Contains(out, "--context") {
		t.Error("netcraqctl has the plugin's flags")
	}

	t.Setenv("PATH", t.TempDir())
	if code, _, complaint = start(t, name, "chain", "show"); code != exitError || !strings.Contains(complaint, "kubectl") {
		t.Errorf("without kubectl: code %d, %q", code, complaint)
	}
}

// Quoted text in a report can neither control the terminal nor look like a line of the report.
func TestReportOfHostileText(t *testing.T) {
	hostile := "quiet\nok       agents  ready on 9 nodes\r\x1b[2J\x1b]52;c;eA==\a\u009b\u202e\xff"
	var out bytes.Buffer
	printReport(&out, &doctor.Report{Host: "h\x1b[1m", Findings: []doctor.Finding{
		{Check: "agents", Subject: hostile, Level: doctor.Problem, Message: hostile, Advice: hostile},
		{Check: "images", Level: doctor.OK, Message: `the image "é" is there`}}}, false)
	for _, r := range out.String() {
		if r != '\n' && !unicode.IsPrint(r) {
			t.Errorf("%U reaches the terminal", r)
		}
	}
	if n := strings.Count(out.String(), "\n"); n != 4 || !strings.Contains(out.String(), `quiet\nok`) ||
		!strings.Contains(out.String(), `the image "é" is there`) {
		t.Errorf("%d lines, want 4:\n%s", n, out.String())
	}
}
