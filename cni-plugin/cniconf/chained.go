package cniconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/netcraq/netcraq/internal/atomicfile"
)

// In chained mode the plugin list is in another plugin's file, which that plugin may rewrite at any
// time. The agent inserts an entry into the file's text, and removes the entry again. All other
// text stays the same byte for byte, whatever its form. So the agent need not remember the
// original.
//
//	{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [
//	    {"type": "flannel", ...},
//	    {"type": "portmap", ...},                                       <- the agent cuts from the end of this
//	    {"type":"netcraq-cni","chained":true,"socket":"/run/..."}       <- to the end of this
//	]}
//
// A file with one plugin (.conf) has no list, so the agent does not change it. Instead the agent
// writes a list that has a copy of this plugin, in a file whose name sorts before it. When the
// original file changes, the agent writes the list again.

// ChainedFile is the name of the file with the list that has a copy of another file's plugin.
const ChainedFile = "00-netcraq-chained.conflist"

// pluginType is the type of the agent's entries, by which they are found.
const pluginType = "netcraq-cni"

// ErrNoList means that no other plugin has a configuration yet. Chained.Apply returns it.
var ErrNoList = errors.New("no other plugin has a configuration there yet")

// Chained configures an entry for netcraq-cni after another plugin.
type Chained struct {
	Dir    string // folder in which the container runtime looks for its network configuration
	Socket string // path of the agent's socket
}

func (c Chained) entry() []byte {
	b, err := json.Marshal(struct {
		Type    string `json:"type"`
		Chained bool   `json:"chained"`
		Socket  string `json:"socket"`
	}{pluginType, true, c.Socket})
	if err != nil {
		panic(err) // cannot happen, because the value has only two strings and a bool
	}
	return b
}

// Apply puts the entry after the plugins of the file that a runtime uses. This is the first file in
// the order of names. Apply removes the entry from all other files. It may be called at any time,
// and changes nothing if the files are already correct. The result file is the file that has the
// entry.
func (c Chained) Apply() (file string, changed bool, err error) {
	files, err := others(c.Dir)
	if err != nil {
		return "", false, err
	}
	if len(files) == 0 {
		changed, err = unchain(c.Dir, "")
		return "", changed, errors.Join(err, fmt.Errorf("%s: %w", c.Dir, ErrNoList))
	}
	source := filepath.Join(c.Dir, files[0])
	text, err := os.ReadFile(source)
	if err != nil {
		return "", false, fmt.Errorf("the configuration of the other plugin: %w", err)
	}
	if filepath.Ext(source) == ".conflist" {
		file = source
		changed, err = edit(source, func(text []byte) ([]byte, error) { return add(text, c.entry()) })
	} else {
		file = filepath.Join(c.Dir, ChainedFile)
		changed, err = c.copy(source, text, file)
	}
	if err != nil {
		return "", false, fmt.Errorf("putting netcraq-cni behind the plugins of %s: %w", source, err)
	}
	also, err := unchain(c.Dir, filepath.Base(file))
	return file, changed || also, err
}

// Unchain removes the entry from all files. Their text is then the same as without the entry.
func Unchain(dir string) error {
	_, err := unchain(dir, "")
	return err
}

// UnchainOthers is like Unchain, but does not change the agent's own list. It is for an agent that
// makes the pods' network itself.
func UnchainOthers(dir string) error {
	_, err := unchain(dir, File)
	return err
}

// unchain is like Unchain, except that it skips the file but. Otherwise it also removes the list of
// an agent that made the pods' network, because a runtime would use that list first.
func unchain(dir, but string) (changed bool, err error) {
	files, err := others(dir)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, f := range files {
		if f == but || filepath.Ext(f) != ".conflist" {
			continue
		}
		did, err := edit(filepath.Join(dir, f), func(text []byte) ([]byte, error) {
			out, err := remove(text)
			if err != nil && !bytes.Contains(text, []byte(pluginType)) {
				return text, nil // another program has damaged the file
			}
			return out, err
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("taking netcraq-cni out of %s: %w", f, err))
		}
		changed = changed || did
	}
	for _, own := range []string{ChainedFile, File} {
		if own == but {
			continue
		}
		switch err := os.Remove(filepath.Join(dir, own)); {
		case err == nil:
			changed = true
		case !errors.Is(err, os.ErrNotExist):
			errs = append(errs, fmt.Errorf("removing a list of netcraq-cni: %w", err))
		}
	}
	return changed, errors.Join(errs...)
}

// others returns those files of a folder that a runtime reads, except for ours, in the runtime's
// order.
func others(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the folder of plugins' configurations: %w", err)
	}
	for _, e := range entries {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) && !e.IsDir() &&
			e.Name() != File && e.Name() != ChainedFile {
			out = append(out, e.Name())
		}
	}
	return out, nil // os.ReadDir returns the same order as runtimes use
}

// edit atomically replaces the text of a file by the result of change. The file keeps its owner and
// permissions. If another program has written the file meanwhile, edit does not change it and
// returns an error.
func edit(path string, change func([]byte) ([]byte, error)) (changed bool, err error) {
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return false, err
	}
	before, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	after, err := change(before)
	if err != nil || bytes.Equal(before, after) {
		return false, err
	}
	return true, replaceAs(path, path, after, func() error {
		now, err := os.ReadFile(path)
		if err == nil && !bytes.Equal(now, before) {
			err = errBeingWritten
		}
		return err
	})
}

// replaceAs replaces a file by text, with the owner and the permissions of the file like. Just
// before, it calls still. If still fails, replaceAs changes nothing.
func replaceAs(path, like string, text []byte, still func() error) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	return atomicfile.Replace(path, info.Mode().Perm(), func(w io.Writer) error {
		_, err := w.Write(text)
		if f, ok := w.(*os.File); ok && err == nil {
			err = ownAs(f, info)
		}
		return errors.Join(err, still())
	})
}

// copy writes a list that has the one plugin of a file, and the entry after it. It does not change
// entries that other programs have put into that list, for example a service mesh.
func (c Chained) copy(source string, text []byte, to string) (changed bool, err error) {
	if filepath.Base(source) < filepath.Base(to) {
		return false, fmt.Errorf("it is one plugin's and sorts before %s, so a runtime would take it: give it a later name, or make it a list (.conflist)", ChainedFile)
	}
	var conf struct {
		Version string `json:"cniVersion"`
		Name    string `json:"name"`
		Type    string `json:"type"`
	}
	if err := json.Unmarshal(text, &conf); err != nil {
		return false, err
	}
	if conf.Type == "" || conf.Name == "" {
		return false, errors.New("it has no name or no type: it is no plugin's configuration")
	}
	if err := knowsChains(conf.Version); err != nil {
		return false, err
	}
	old, err := os.ReadFile(to)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	plugins := [][]byte{bytes.TrimSpace(text)}
	if there, err := elements(old); err == nil && slices.ContainsFunc(there, element.ours) {
		for _, e := range there[1:] { // the first entry is the plugin that was copied from the file
			if !e.ours() {
				plugins = append(plugins, e.text)
			}
		}
	}
	name, _ := json.Marshal(conf.Name)
	version, _ := json.Marshal(conf.Version)
	list := fmt.Appendf(nil, "{\"cniVersion\": %s, \"name\": %s, \"plugins\": [\n%s\n]}\n", version, name,
		bytes.Join(append(plugins, c.entry()), []byte(",\n")))
	if sameJSON(old, list) {
		return false, nil
	}
	return true, replaceAs(to, source, list, func() error { return nil })
}

// knowsChains returns an error if a version of the CNI specification has no chained results.
func knowsChains(version string) error {
	if version == "" || strings.HasPrefix(version, "0.1.") || strings.HasPrefix(version, "0.2.") {
		return fmt.Errorf("its cniVersion %q is older than 0.3.0, which knows no chains of plugins", version)
	}
	return nil
}

// element is the position of a plugin in the text of a list.
type element struct {
	from, to int // the plugin's bytes are text[from:to]
	kind     string
	text     []byte
}

func (e element) ours() bool { return e.kind == pluginType }

// elements returns the plugins of a list.
func elements(text []byte) (out []element, err error) {
	var list struct {
		Version string            `json:"cniVersion"`
		Name    string            `json:"name"`
		Plugins []json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	if list.Name == "" || len(list.Plugins) == 0 {
		return nil, errors.New("it has no name or no plugins: it is no list of plugins")
	}
	if err := knowsChains(list.Version); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if _, err := d.Token(); err != nil { // reads {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key != "plugins" {
			if err := d.Decode(new(json.RawMessage)); err != nil {
				return nil, err
			}
			continue
		}
		if out != nil {
			return nil, errors.New("it has plugins twice")
		}
		if _, err := d.Token(); err != nil { // reads [
			return nil, err
		}
		for d.More() {
			var raw json.RawMessage
			if err := d.Decode(&raw); err != nil {
				return nil, err
			}
			var plugin struct {
				Type string `json:"type"`
			}
			if err := json.Unmarshal(raw, &plugin); err != nil {
				return nil, fmt.Errorf("plugin %d: %w", len(out), err)
			}
			end := int(d.InputOffset())
			out = append(out, element{end - len(raw), end, plugin.Type, raw})
		}
		if _, err := d.Token(); err != nil { // reads ]
			return nil, err
		}
	}
	if len(out) != len(list.Plugins) {
		return nil, errors.New("its plugins are under a name that is written otherwise")
	}
	return out, nil
}

// add returns a list that has the entry once, after all other plugins.
func add(text, entry []byte) ([]byte, error) {
	plugins, err := elements(text)
	if err != nil {
		return nil, err
	}
	ours := 0
	for _, p := range plugins {
		if p.ours() {
			ours++
		}
	}
	if ours == len(plugins) {
		return nil, errors.New("there is no other plugin in it")
	}
	if last := plugins[len(plugins)-1]; ours == 1 && last.ours() && bytes.Equal(last.text, entry) {
		return text, nil
	}
	if text, err = remove(text); err != nil {
		return nil, err
	}
	if plugins, err = elements(text); err != nil {
		return nil, err
	}
	last := plugins[len(plugins)-1]
	indent := " "
	line := text[bytes.LastIndexByte(text[:last.from], '\n')+1 : last.from]
	if len(line) < last.from && len(bytes.TrimSpace(line)) == 0 {
		indent = "\n" + string(line)
	}
	return slices.Concat(text[:last.to], []byte(","+indent), entry, text[last.to:]), nil
}

// remove returns a list without our entries. It cuts out each entry together with the comma before
// it.
func remove(text []byte) ([]byte, error) {
	for {
		plugins, err := elements(text)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(plugins, element.ours)
		switch {
		case i < 0:
			return text, nil
		case i > 0:
			text = slices.Concat(text[:plugins[i-1].to], text[plugins[i].to:])
		case len(plugins) == 1:
			return nil, errors.New("there is no other plugin in it")
		default: // another program has put our entry first
			text = slices.Concat(text[:plugins[0].from], text[plugins[1].from:])
		}
	}
}
