package node

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// FuzzAnswers checks that no answer of a server causes a panic. The fast parser of ids agrees with
// JSON. A watch reports the newest event of each key exactly once.
func FuzzAnswers(f *testing.F) {
	for _, line := range []string{
		`{"id":1,"data":{"version":"1.1"}}`,
		`{"id":9007199254740991,"error":{"code":"not_held","message":"m","do":"d"}}`,
		`{"data":{},"id":7,"more":true}`,
		`{"id":7,"data":{"events":[{"key":"a","found":true,"value":"1","version":"1.1"},{"key":"a","found":false,"version":"1.2","overtaken":3}]},"more":true}`,
		`{"id":4,"data":{"service":"orders","instances":[{"instance":"a","address":"10.0.0.7:80","node":"n1"}]},"more":true}`,
		`{"id":2,"data":{"items":[{"key":"k","found":true,"valueBase64":"/wA=","version":"0.0"},{"key":"e","error":{"code":"timeout"}}]}}`,
		`{"id":0,"data":{"draining":true}}`, `{"id":1,"id":2,"data":{}}`, `{"id":12345678901234567,"data":{}}`, `{"id":-1,}`,
		`{"id":1,"data":{"version":"18446744073709551616.-1"}}`, `{"id":1,"data":null}`, `[]`, `null`, ``,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		id, ok := idOf(line)
		var whole response[json.RawMessage]
		if err := json.Unmarshal(line, &whole); err == nil && ok && id != whole.ID &&
			bytes.Count(bytes.ToLower(line), []byte("id")) == 1 && !bytes.Contains(line, []byte(`\`)) {
			t.Fatalf("%q: the id is %d, not %d", line, id, whole.ID)
		}
		for _, read := range []func() error{
			func() error { _, err := answerOf[nodeapi.Item](nodeapi.FuncGet, line); return err },
			func() error { _, err := answerOf[nodeapi.GetManyAnswer](nodeapi.FuncGetMany, line); return err },
			func() error { _, err := answerOf[nodeapi.CASAnswer](nodeapi.FuncCAS, line); return err },
			func() error { _, err := answerOf[nodeapi.IncrementAnswer](nodeapi.FuncIncrement, line); return err },
			func() error { _, err := answerOf[nodeapi.HelloAnswer](nodeapi.FuncHello, line); return err },
		} {
			if err := read(); err != nil && err.Error() == "" && whole.Error == nil {
				t.Fatalf("%q: an error without a word", line)
			}
		}
		if answer, err := answerOf[nodeapi.GetManyAnswer](nodeapi.FuncGetMany, line); err == nil {
			for i := range answer.Items {
				if item := itemOf(&answer.Items[i]); item.Found && item.Value == nil {
					t.Fatalf("%q: an item that is found has no value", line)
				}
			}
		}
		var told response[nodeapi.WatchAnswer]
		if json.Unmarshal(line, &told) != nil || told.Data == nil {
			return
		}
		w := &Watch{last: map[string]Version{}, pending: map[string]*Event{}}
		for i := range told.Data.Events {
			w.take(&told.Data.Events[i])
			w.take(&told.Data.Events[i]) // The second call must not report the same version again.
		}
		keys := map[string]bool{}
		for _, key := range w.order {
			if keys[key] || w.pending[key] == nil || w.last[key] != w.pending[key].Version {
				t.Fatalf("%q: %q is told twice, or not as it is", line, key)
			}
			keys[key] = true
		}
		for _, e := range told.Data.Events {
			if newest := w.last[e.Key]; Version(e.Version).Newer(newest) {
				t.Fatalf("%q: the newest of %q is %s, not %s", line, e.Key, e.Version, newest)
			}
		}
	})
}
