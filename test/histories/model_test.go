package histories

import (
	"testing"

	"github.com/anishathalye/porcupine"
)

// TestModel checks that the model accepts exactly what etcd does.
func TestModel(t *testing.T) {
	put := func(v string, rev int64) porcupine.Operation {
		return porcupine.Operation{Input: keyInput{key: "k", write: true, there: true, value: v},
			Output: keyOutput{known: rev != 0, did: true, rev: rev}}
	}
	read := func(s keyState) porcupine.Operation {
		return porcupine.Operation{Input: keyInput{key: "k"}, Output: keyOutput{known: true, state: s}}
	}
	at := func(value string, create, mod, version int64) keyState {
		return keyState{true, value, create, mod, version}
	}
	remove := porcupine.Operation{Input: keyInput{key: "k", write: true}, Output: keyOutput{known: true,
		did: true, rev: 50}}
	for name, test := range map[string]struct {
		ops []porcupine.Operation // operations, one after the other
		ok  bool
	}{
		"as written": {[]porcupine.Operation{put("a", 5), read(at("a", 5, 5, 1)), put("b", 7),
			read(at("b", 5, 7, 2))}, true},
		"stale":                   {[]porcupine.Operation{put("a", 5), put("b", 7), read(at("a", 5, 5, 1))}, false},
		"another mod revision":    {[]porcupine.Operation{put("a", 5), read(at("a", 5, 6, 1))}, false},
		"another version":         {[]porcupine.Operation{put("a", 5), read(at("a", 5, 5, 2))}, false},
		"revisions go back":       {[]porcupine.Operation{put("a", 5), put("b", 4)}, false},
		"created anew":            {[]porcupine.Operation{put("a", 5), remove, put("b", 60), read(at("b", 60, 60, 1))}, true},
		"not created anew":        {[]porcupine.Operation{put("a", 5), remove, put("b", 60), read(at("b", 5, 60, 2))}, false},
		"an unanswered one":       {[]porcupine.Operation{put("a", 0), read(at("a", 5, 5, 1)), read(at("a", 5, 5, 1))}, true},
		"an unanswered one, two":  {[]porcupine.Operation{put("a", 0), read(at("a", 5, 5, 1)), read(at("a", 6, 6, 1))}, false},
		"absent":                  {[]porcupine.Operation{put("a", 5), remove, read(keyState{})}, true},
		"absent though it is not": {[]porcupine.Operation{put("a", 5), read(keyState{})}, false},
	} {
		for i := range test.ops {
			test.ops[i].Call, test.ops[i].Return = int64(2*i), int64(2*i+1)
		}
		if got := porcupine.CheckOperations(Model, test.ops); got != test.ok {
			t.Errorf("%s: linearizable %v; want %v", name, got, test.ok)
		}
	}
}
