package reference

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/internal/refpage"
)

// unitLine matches a setting in a systemd unit.
var unitLine = regexp.MustCompile(`(?m)^(Description|ConditionPathExists|ExecStart|EnvironmentFile)=(.*)$`)

// TestConfiguration checks that the reference page has the configuration files of the programs that
// packages install.
func TestConfiguration(t *testing.T) {
	const files = root + "/mk/release/files/"
	var page strings.Builder
	page.WriteString(refpage.Head("Configuration files", "`mk/release/files` and `controlplane/topology/example.yaml`",
		"The Debian packages install these services ([Install NetCRAQ](../how-to/install.md#debian-packages)).\n"+
			"Every other setting is a flag: each program's `--help` and manual page list them, and [Commands](cli.md)\n"+
			"has those of `netcraq`. In Kubernetes, use the [values of the chart](chart.md)."))
	units, err := filepath.Glob(files + "*.service")
	if err != nil || len(units) == 0 {
		t.Fatalf("%d units: %v", len(units), err)
	}
	page.WriteString("\n## Services\n\n" + refpage.Row("service", "what it runs", "starts if there is", "command") +
		refpage.Row("---", "---", "---", "---"))
	for _, unit := range units {
		text := map[string]string{}
		for _, found := range unitLine.FindAllStringSubmatch(read(t, unit), -1) {
			text[found[1]] = found[2]
		}
		if text["ExecStart"] == "" {
			t.Fatalf("%s has no ExecStart", unit)
		}
		condition := ""
		if file := text["ConditionPathExists"]; file != "" {
			condition = "`" + file + "`"
		}
		page.WriteString(refpage.Row("`"+strings.TrimSuffix(filepath.Base(unit), ".service")+"`", text["Description"],
			condition, "`"+text["ExecStart"]+"`"))
	}
	for _, file := range []struct{ title, path, intro string }{
		{"/etc/netcraq/netcraq.yaml", files + "netcraq.yaml",
			"The service `netcraq` reads this file. Each line is a flag of [`netcraq dev`](cli.md#netcraq-dev)."},
		{"/etc/netcraq/etcd-monitor.yaml", files + "etcd-monitor.yaml",
			"The service `etcd-monitor` reads this file. Each line is a flag of `etcd-monitor`."},
		{"/etc/netcraq/network.yaml", root + "/controlplane/topology/example.yaml",
			"The service `netcraq-controller` reads this file, or `netcraq-controller --topology FILE` any other.\n" +
				"Nothing is installed under this name, because each network is different. The example has every field.\n" +
				"An unknown field is an error, which names the line. `--check` checks a file and starts nothing."},
	} {
		text := strings.TrimPrefix(read(t, file.path), "# SPDX-License-Identifier: Apache-2.0\n")
		page.WriteString("\n## " + file.title + "\n\n" + file.intro + "\n\n```yaml\n" + text + "```\n")
	}
	refpage.Check(t, root, "configuration.md", page.String())
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
