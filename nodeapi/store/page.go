package store

import (
	"slices"
	"strings"
)

// Merge merges two pages into one page of a namespace whose keys are in two stores. The two pages
// are from the two stores, for the same range. If a name is in both stores, its field Read is not
// set in the result.
func Merge(one, two Page, most int) Page {
	out := Page{More: one.More || two.More}
	for _, p := range []Page{one, two} {
		out.Names = append(out.Names, p.Names...)
	}
	slices.SortStableFunc(out.Names, func(a, b Listed) int { return strings.Compare(a.Key.Name, b.Key.Name) })
	names := out.Names[:0]
	for _, n := range out.Names {
		if last := len(names) - 1; last >= 0 && names[last].Key == n.Key {
			names[last] = Listed{Item: Item{Key: n.Key}}
			continue
		}
		names = append(names, n)
	}
	// If a page has More set, names of its store may be missing after the page's last name. So the
	// result must end there.
	for _, p := range []Page{one, two} {
		if end := len(p.Names) - 1; p.More {
			names = slices.DeleteFunc(names, func(n Listed) bool { return n.Key.Name > p.Names[end].Key.Name })
		}
	}
	if len(names) > most {
		names, out.More = names[:most], true
	}
	out.Names = names
	return out
}
