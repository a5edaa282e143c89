// Package configfile reads a command's flags from a YAML file, which an administrator of a service
// can edit. A key in the file is a flag's name without the dashes.
package configfile

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"
)

// Flag is the name of the flag that names the file.
const Flag = "config"

// never lists flags that a file cannot set.
var never = []string{Flag, "help", "version"}

// File holds the flags that a file has set.
type File struct {
	name  string
	lines map[string]int // for each flag, the line of the file that sets it
}

// Read sets flags from a file. Flags on the command line take precedence. An error names the file
// and the line. If name is empty there is no file, and Read returns nil.
func Read(name string, flags *pflag.FlagSet) (*File, error) {
	if name == "" {
		return nil, nil
	}
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", Flag, err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(b, &root); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := &File{name: name, lines: map[string]int{}}
	if len(root.Content) == 0 { // the file contains nothing but comments
		return f, nil
	}
	top := root.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: write one option in a line, as NAME: VALUE", name, top.Line)
	}
	for i := 0; i < len(top.Content); i += 2 {
		if err := f.set(flags, top.Content[i], top.Content[i+1]); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, top.Content[i].Line, err)
		}
	}
	return f, nil
}

// set sets the flag that key names to value.
func (f *File) set(flags *pflag.FlagSet, key, value *yaml.Node) error {
	flag := flags.Lookup(key.Value)
	if flag == nil || flag.Hidden || slices.Contains(never, key.Value) {
		return fmt.Errorf("there is no option %q; the options are %s", key.Value, strings.Join(options(flags), ", "))
	}
	if _, twice := f.lines[key.Value]; twice {
		return fmt.Errorf("%s is set a second time, and before in line %d", key.Value, f.lines[key.Value])
	}
	f.lines[key.Value] = key.Line
	var values []string
	switch value.Kind {
	case yaml.ScalarNode:
		values = []string{value.Value}
	case yaml.SequenceNode:
		for _, v := range value.Content {
			if v.Kind != yaml.ScalarNode {
				return fmt.Errorf("%s: a list has texts and numbers only", key.Value)
			}
			values = append(values, v.Value)
		}
		if !strings.HasSuffix(flag.Value.Type(), "Slice") && !strings.HasSuffix(flag.Value.Type(), "Array") {
			return fmt.Errorf("%s takes one value, not a list", key.Value)
		}
	default:
		return fmt.Errorf("%s takes a value, not a mapping", key.Value)
	}
	if flag.Changed { // the command line takes precedence
		return nil
	}
	for _, v := range values {
		if err := flags.Set(key.Value, v); err != nil {
			var invalid *pflag.InvalidValueError
			if errors.As(err, &invalid) {
				err = invalid.Unwrap()
			}
			return fmt.Errorf("%s: %q: %w", key.Value, v, err)
		}
	}
	return nil
}

// options returns the names of the flags that a file can set.
func options(flags *pflag.FlagSet) (all []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && !slices.Contains(never, f.Name) {
			all = append(all, f.Name)
		}
	})
	slices.Sort(all)
	return all
}

// Locate adds the file and the line to an error about a flag that the file has set. Such an error
// begins with the flag, as "--switches 9: pass 1 to 8" does. A nil File returns errors unchanged.
func (f *File) Locate(err error) error {
	if f == nil || err == nil {
		return err
	}
	name, ok := strings.CutPrefix(err.Error(), "--")
	if !ok {
		return err
	}
	if i := strings.IndexAny(name, " :="); i >= 0 {
		name = name[:i]
	}
	if line, set := f.lines[name]; set {
		return fmt.Errorf("%s:%d: %w", f.name, line, err)
	}
	return err
}
