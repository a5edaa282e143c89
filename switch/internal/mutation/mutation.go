// Package mutation creates unusual programs and requests for tests by changing existing ones.
package mutation

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// Document changes a few places in a document that encoding/json has decoded. It removes members
// and elements, and changes numbers. Usually it replaces a value by the value of a member with the
// same name elsewhere in the document, so that readers accept many of the results.
func Document(doc any, r *rand.Rand) {
	var all []func() // Each function in this list changes one place.
	values := map[string][]any{}
	put := func(name string, old any, set func(any), drop func()) {
		values[name] = append(values[name], old)
		all = append(all, func() {
			switch r.IntN(8) {
			case 0:
				drop()
			case 1:
				set([]any{nil, true, 0, -1, 1 << 20, "", "x", []any{}, map[string]any{}}[r.IntN(9)])
			default:
				set(values[name][r.IntN(len(values[name]))])
			}
		})
	}
	var walk func(name string, v any, set func(any))
	walk = func(name string, v any, set func(any)) {
		switch v := v.(type) {
		case map[string]any:
			for _, k := range slices.Sorted(maps.Keys(v)) {
				if k == "source_info" {
					continue
				}
				replace := func(n any) { v[k] = n }
				put(k, v[k], replace, func() { delete(v, k) })
				walk(k, v[k], replace)
			}
		case []any:
			for i := range v {
				replace := func(n any) { v[i] = n }
				put(name+"[]", v[i], replace, func() { set(slices.Delete(slices.Clone(v), i, i+1)) })
				walk(name, v[i], replace)
			}
		}
	}
	walk("", doc, func(any) {})
	if len(all) == 0 {
		return
	}
	for range 1 + r.IntN(3) {
		all[r.IntN(len(all))]()
	}
}
