package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"
)

// Folders that container runtimes use, and the plugin's name.
const (
	confDir = "/etc/cni/net.d"
	binDir  = "/opt/cni/bin"
	plugin  = "netcraq-cni"
)

func cni(_ context.Context, l *look) {
	dir := l.path(confDir)
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	switch {
	case err != nil:
		l.unseen(confDir, "listing it", err)
		return
	case len(files) == 0:
		l.note(confDir, "no network is configured: on a node of a cluster the agent writes one when it is ready; elsewhere none is needed")
		return
	}
	slices.Sort(files)
	valid := 0
	for _, file := range files {
		base := filepath.Base(file)
		list, err := readNetwork(file)
		switch {
		case denied(err):
			l.unseen(base, "reading it", err)
			continue
		case err != nil:
			l.problem(base, "mend or remove it: runtimes skip it, or take the node for one without a network", "%v", err)
			continue
		}
		valid++
		l.network(base, list, valid == 1)
	}
}

// network is the content of a plugin list, or of a file with a single plugin.
type network struct {
	Name    string `json:"name"`
	Plugins []struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	} `json:"plugins"`
}

func readNetwork(file string) (n network, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return n, err
	}
	if filepath.Ext(file) != ".conflist" {
		b = fmt.Appendf(nil, `{"plugins": [%s]}`, b)
	}
	if err := json.Unmarshal(b, &n); err != nil {
		return n, fmt.Errorf("it is not a valid network file: %w", err)
	}
	for _, p := range n.Plugins {
		if p.Type == "" {
			return n, errors.New("it has a plugin without a type")
		}
	}
	if len(n.Plugins) == 0 {
		return n, errors.New("it has no plugins")
	}
	return n, nil
}

// network checks one network configuration file. first reports whether container runtimes use this
// file.
func (l *look) network(base string, list network, first bool) {
	var kinds []string
	for _, p := range list.Plugins {
		kinds = append(kinds, p.Type)
	}
	at := slices.Index(kinds, plugin)
	said := fmt.Sprintf("the network %q: %s", list.Name, strings.Join(kinds, ", "))
	switch {
	case !first && at >= 0:
		l.problem(base, "remove the file that comes before it by name, or give that one the name that comes later",
			"%s is not used: runtimes take the first file by name", said)
	case !first:
		l.note(base, "%s is not used: runtimes take the first file by name", said)
	case at < 0:
		l.note(base, "%s: NetCRAQ is not in it", said)
	case at > 0:
		l.ok(base, "%s: NetCRAQ behind %s", said, kinds[0])
	default:
		l.ok(base, "%s", said)
	}
	if !first {
		return
	}
	for _, kind := range kinds {
		l.plugin(kind)
	}
	for _, p := range list.Plugins {
		if p.IPAM.Type != "" {
			l.plugin(p.IPAM.Type)
		}
	}
}

// plugin reports an error if a plugin's binary is missing.
func (l *look) plugin(kind string) {
	info, err := os.Stat(l.path(filepath.Join(binDir, kind)))
	advice := "the agent installs its own plugins when it starts; others come with the CNI project's release"
	switch {
	case errors.Is(err, os.ErrNotExist):
		l.problem(kind, advice, "%s is not in %s: no pod is given a network", kind, binDir)
	case err != nil:
		l.unseen(kind, "looking at it", err)
	case info.Mode()&0o111 == 0:
		l.problem(kind, "chmod 0755 "+filepath.Join(binDir, kind), "%s cannot be executed: no pod is given a network", kind)
	}
}
