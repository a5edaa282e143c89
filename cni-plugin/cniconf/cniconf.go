// Package cniconf puts NetCRAQ into the places where a container runtime looks for its network: the
// plugins' binaries into one folder (/opt/cni/bin), and a list of plugins into another
// (/etc/cni/net.d). The list comes last, since a runtime takes a node with it for one whose network
// works.
package cniconf

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/netcraq/netcraq/internal/durable"
)

// File is the list's name. Runtimes take the first in the order of names.
const File = "10-netcraq.conflist"

// Network is the name of the network, which is in the attachments' records and in host-local's.
const Network = "netcraq"

// Config is what the list says.
type Config struct {
	// of the CNI specification: 1.1.0, or 1.0.0 for runtimes that do not know it (containerd before
	// 2.0)
	Version string
	Subnets []netip.Prefix // of the node's pods
	Socket  string         // the agent's
	MTU     int            // bytes; 0: the agent's
}

// List is the file's content.
func (c Config) List() ([]byte, error) {
	if len(c.Subnets) == 0 {
		return nil, errors.New("the plugins' configuration: the node has no prefix for pods")
	}
	type object = map[string]any
	var ranges [][]object
	var routes []object
	for _, p := range c.Subnets {
		ranges = append(ranges, []object{{"subnet": p.String()}})
		to := "0.0.0.0/0"
		if p.Addr().Is6() {
			to = "::/0"
		}
		routes = append(routes, object{"dst": to})
	}
	own := object{"type": "netcraq-cni", "socket": c.Socket, "ipam": object{"type": "host-local", "ranges": ranges, "routes": routes}}
	if c.MTU != 0 {
		own["mtu"] = c.MTU
	}
	b, err := json.MarshalIndent(object{"cniVersion": c.Version, "name": Network, "plugins": []object{
		own,
		{"type": "portmap", "capabilities": object{"portMappings": true}},
		{"type": "bandwidth", "capabilities": object{"bandwidth": true}},
	}}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("the plugins' configuration: %w", err)
	}
	return append(b, '\n'), nil
}

// Write writes the list into a folder, which it makes; changed says whether it was another before.
func (c Config) Write(dir string) (changed bool, err error) {
	b, err := c.List()
	if err != nil {
		return false, err
	}
	path := filepath.Join(dir, File)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(b) {
		return false, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("the folder of plugins' configurations: %w", err)
	}
	if err := durable.Replace(path, 0o600, func(f io.Writer) error { _, err := f.Write(b); return err }); err != nil {
		return false, fmt.Errorf("the plugins' configuration: %w", err)
	}
	return true, nil
}

// Remove removes the list.
func Remove(dir string) error {
	if err := os.Remove(filepath.Join(dir, File)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the plugins' configuration: %w", err)
	}
	return nil
}

// Install copies the plugins of one folder into another. A plugin that runs keeps its old file
// until it ends. own are replaced always; what others may have put there is left: they know their
// version best.
func Install(from, to string, own ...string) error { return install(from, to, own, true) }

// InstallOnly copies some plugins of one folder into another, where the others are not this
// project's business.
func InstallOnly(from, to string, own ...string) error { return install(from, to, own, false) }

func install(from, to string, own []string, others bool) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("installing plugins: %w", err)
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return fmt.Errorf("installing plugins: %w", err)
	}
	for _, e := range entries {
		target := filepath.Join(to, e.Name())
		if !e.Type().IsRegular() {
			continue
		}
		mine := false
		for _, o := range own {
			mine = mine || o == e.Name()
		}
		if _, err := os.Stat(target); !mine && (err == nil || !others) {
			continue
		}
		if err := durable.Replace(target, 0o755, func(f io.Writer) error {
			in, err := os.Open(filepath.Join(from, e.Name()))
			if err != nil {
				return err
			}
			defer in.Close()
			_, err = io.Copy(f, in)
			return err
		}); err != nil {
			return fmt.Errorf("installing the plugin %s: %w", e.Name(), err)
		}
	}
	return nil
}
