package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Check is one check of a machine or of a cluster. All checks of a run share the state L.
type Check[L any] struct {
	Name string
	What string // description of what is checked
	Run  func(context.Context, L)
}

// Describe lists the names and descriptions of checks.
func Describe[L any](checks []Check[L]) (out [][2]string) {
	for _, c := range checks {
		out = append(out, [2]string{c.Name, c.What})
	}
	return out
}

// Select returns the checks with the given names, in the order of the report. No names select all
// checks. An unknown name is an error. The error message ends with of, for example " of a cluster".
func Select[L any](checks []Check[L], names []string, of string) ([]Check[L], error) {
	var have []string
	for _, c := range checks {
		have = append(have, c.Name)
	}
	for _, name := range names {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("there is no check %q%s; there are %s", name, of, strings.Join(have, ", "))
		}
	}
	if len(names) == 0 {
		return checks, nil
	}
	unwanted := func(c Check[L]) bool { return !slices.Contains(names, c.Name) }
	return slices.DeleteFunc(slices.Clone(checks), unwanted), nil
}
