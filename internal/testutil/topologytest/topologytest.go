// Package topologytest changes topology files for tests.
package topologytest

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// Object is a part of a topology file.
type Object = map[string]any

// Add appends objects to a list of a topology.
func Add(top Object, list string, objects ...any) {
	all, _ := top[list].([]any)
	top[list] = append(all, objects...)
}

// Drop removes the objects with these names from a list.
func Drop(top Object, list string, names ...string) {
	top[list] = slices.DeleteFunc(top[list].([]any), func(o any) bool {
		if pair, ok := o.([]any); ok {
			return slices.ContainsFunc(pair, func(end any) bool {
				sw, _, _ := strings.Cut(end.(string), ":")
				return slices.Contains(names, sw)
			})
		}
		return slices.Contains(names, o.(Object)["name"].(string))
	})
}

// Pods returns n hosts of a switch, from port 100 on.
func Pods(sw string, n int) []any {
	var out []any
	for i := range n {
		out = append(out, Object{"name": fmt.Sprintf("%s-pod%d", sw, i), "ip": fmt.Sprintf("10.7.%s.%d", sw[1:],
			i+1), "mac": fmt.Sprintf("02:07:00:00:%02s:%02x", sw[1:], i+1), "port": fmt.Sprintf("%s:%d", sw, 100+i)})
	}
	return out
}

// Read reads a topology file and applies changes.
func Read(t *testing.T, file string, change func(Object)) Object {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var top Object
	if err := json.Unmarshal(b, &top); err != nil {
		t.Fatal(err)
	}
	change(top)
	return top
}
