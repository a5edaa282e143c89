// Package cniconf installs NetCRAQ where a container runtime expects its network. It writes the
// plugins' binaries into one folder (/opt/cni/bin), and a list of plugins into another folder
// (/etc/cni/net.d). It writes the list last, because a runtime that finds a list assumes that the
// node's network works.
package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"

	"github.com/netcraq/netcraq/internal/atomicfile"
)

// File is the file name of the list. Runtimes use the first file in the order of names.
const File = "10-netcraq.conflist"

// Network is the name of the network in the attachments' records and in host-local's leases.
const Network = "netcraq"

// Config is the content of the list.
type Config struct {
	// Version is the version of the CNI specification: 1.1.0, or 1.0.0 for runtimes that do not
	// know 1.1.0 (containerd before 2.0).
	Version string
	Subnets []netip.Prefix // prefixes of the node's pods
	Socket  string         // path of the agent's socket
	MTU     int            // MTU in bytes; 0 means the agent's default
}

// plugins returns the types and the entries of the list's plugins, in their order.
func (c Config) plugins() (types []string, entries []any, err error) {
	if len(c.Subnets) == 0 {
		return nil, nil, errors.New("the plugins' configuration: the node has no prefix for pods")
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
	own := object{"type": pluginType, "socket": c.Socket, "ipam": object{"type": "host-local", "ranges": ranges, "routes": routes}}
	if c.MTU != 0 {
		own["mtu"] = c.MTU
	}
	return []string{pluginType, "portmap", "bandwidth"}, []any{own,
		object{"type": "portmap", "capabilities": object{"portMappings": true}},
		object{"type": "bandwidth", "capabilities": object{"bandwidth": true}}}, nil
}

// list returns the new content of the file. If other programs have put entries into the old
// content, for example a service mesh's plugin, these entries keep their places among ours.
// netcraq-cni comes first, because it makes the interface.
func (c Config) list(old []byte) ([]byte, error) {
	types, own, err := c.plugins()
	if err != nil {
		return nil, err
	}
	list, next := own[:1:1], 1
	there, err := elements(old)
	if err != nil || !slices.ContainsFunc(there, element.ours) { // the old text is damaged, or another network's list
		there = nil
	}
	for _, e := range there {
		switch i := slices.Index(types, e.kind); {
		case i < 0:
			list = append(list, json.RawMessage(e.text))
		case i >= next:
			list, next = append(list, own[next:i+1]...), i+1
		}
	}
	list = append(list, own[next:]...)
	b, err := json.MarshalIndent(map[string]any{"cniVersion": c.Version, "name": Network, "plugins": list}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("the plugins' configuration: %w", err)
	}
	return append(b, '\n'), nil
}

// Write writes the list into a folder, which it creates. It keeps other plugins' entries. If the
// content is equivalent, it does not change the file. changed reports whether it has written the
// file.
func (c Config) Write(dir string) (changed bool, err error) {
	path := filepath.Join(dir, File)
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("the plugins' configuration: %w", err)
	}
	b, err := c.list(old)
	if err != nil || sameJSON(old, b) {
		return false, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return false, fmt.Errorf("the folder of plugins' configurations: %w", err)
	}
	if err := atomicfile.Replace(path, 0o600, func(f io.Writer) error {
		_,
			err := f.Write(b)
		return err
	}); err != nil {
		return false, fmt.Errorf("the plugins' configuration: %w", err)
	}
	return true, nil
}

// sameJSON reports whether two texts are the same JSON value, whatever their formatting.
func sameJSON(x, y []byte) bool {
	var a, b any
	return json.Unmarshal(x, &a) == nil && json.Unmarshal(y, &b) == nil && reflect.DeepEqual(a, b)
}

// Remove removes the list from a folder.
func Remove(dir string) error {
	if err := os.Remove(filepath.Join(dir, File)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing the plugins' configuration: %w", err)
	}
	return nil
}

// Plugins are the plugin binaries to install for a container runtime.
type Plugins struct {
	From string // folder with the binaries; if "", none are installed
	To   string // folder in which the runtime expects the binaries
	// Own is the name of the project's own plugin. Install replaces it whenever it differs from the
	// binary in From. Install does not replace other existing plugins, because whoever installed
	// them chose their version.
	Own     string
	OnlyOwn bool // whether only Own is installed
}

// Install copies the plugins. A running plugin keeps using its old file until it ends.
func (p Plugins) Install() (changed bool, err error) {
	if p.From == "" {
		return false, nil
	}
	entries, err := os.ReadDir(p.From)
	if err != nil {
		return false, fmt.Errorf("installing plugins: %w", err)
	}
	if err := os.MkdirAll(p.To, 0o755); err != nil {
		return false, fmt.Errorf("installing plugins: %w", err)
	}
	for _, e := range entries {
		if !e.Type().IsRegular() || p.OnlyOwn && e.Name() != p.Own {
			continue
		}
		did, err := p.install(e.Name())
		if err != nil {
			return changed, fmt.Errorf("installing the plugin %s: %w", e.Name(), err)
		}
		changed = changed || did
	}
	return changed, nil
}

func (p Plugins) install(name string) (changed bool, err error) {
	target := filepath.Join(p.To, name)
	info, err := os.Stat(target)
	if err == nil && name != p.Own {
		return false, nil
	}
	text, readErr := os.ReadFile(filepath.Join(p.From, name))
	if readErr != nil {
		return false, readErr
	}
	if err == nil && info.Mode().Perm() == pluginMode && info.Size() == int64(len(text)) {
		if there, err := os.ReadFile(target); err == nil && bytes.Equal(there, text) {
			return false, nil
		}
	}
	return true, atomicfile.Replace(target, pluginMode, func(f io.Writer) error { _, err := f.Write(text); return err })
}

const pluginMode = 0o755

// folders returns the folders to watch: To, and dir if it is not "".
func (p Plugins) folders(dir string) (out []string) {
	if dir != "" {
		out = append(out, dir)
	}
	if p.From != "" {
		out = append(out, p.To)
	}
	return out
}
