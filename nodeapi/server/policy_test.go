package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The first rule that is for a caller and a namespace counts, and a refusal names it.
func TestPolicy(t *testing.T) {
	p, err := parsePolicy(strings.NewReader(`
rules:
  - {users: ["7"], namespaces: [secret], may: nothing}
  - {users: ["7"], namespaces: ["*"], may: write, own: seven}
  - {groups: ["9"], namespaces: [shop, stock], may: read, own: shop}
  - {namespaces: [open], may: read}
`), "default")
	if err != nil {
		t.Fatal(err)
	}
	p.name = "policy.yaml"
	seven, nine, tcp := Peer{Local: true, UID: 7}, Peer{Local: true, UID: 8, GID: 9}, Peer{Address: "127.0.0.1:7"}
	for _, c := range []struct {
		peer      Peer
		namespace string
		write     bool
		want      string
	}{
		{seven, "shop", true, ""},
		{seven, "secret", false, "by rule 1 of policy.yaml, nothing"},
		{nine, "shop", false, ""},
		{nine, "stock", true, "by rule 3 of policy.yaml, read"},
		{nine, "open", false, ""},
		{nine, "default", false, "no rule of policy.yaml is for that"},
		{tcp, "open", false, ""},
		{tcp, "open", true, "by rule 4"},
		{tcp, "shop", false, "no rule"},
	} {
		err := p.Allow(t.Context(), c.peer, c.namespace, c.write)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v in %s, write %v: %v, want %q", c.peer, c.namespace, c.write, err, c.want)
		}
	}
	for peer, want := range map[Peer]string{seven: "seven", nine: "shop", tcp: "default"} {
		if got := p.Namespace(peer); got != want {
			t.Errorf("%v: %s, want %s", peer, got, want)
		}
	}
	for text, want := range map[string]string{
		"rules: [{users: [nobody-of-this-name], namespaces: [a], may: read}]": "rule 1: user: unknown user",
		"rules: [{namespaces: [a], may: fly}]":                                `may: "fly"`,
		"rules: [{namespaces: [A], may: read}]":                               "DNS label",
		"rules: [{may: read}]":                                                "no namespaces",
		"rules: [{namespaces: [a], may: read, uid: 3}]":                       "field uid not found",
		"- 1": "cannot unmarshal",
	} {
		if _, err := parsePolicy(strings.NewReader(text), ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// A server asks its policy about each function: what only reads needs read, all others write.
func TestPolicyServed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policy.yaml")
	text := fmt.Sprintf("rules: [{users: [%q], namespaces: [shop], may: read, own: shop}]", fmt.Sprint(os.Getuid()))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := LoadPolicy(file, "default")
	if err != nil {
		t.Fatal(err)
	}
	_, path := start(t, Config{Authority: p})
	l := dial(t, path)
	l.send(`{"id":1,"func":"hello"}`)
	l.expectPart(`"namespace":"shop"`)
	keys := `"key":"k","keys":["k"],"value":"v","version":"0.0","name":"n","ttlMs":1000,"lease":"000000000000","token":"1",` +
		`"service":"s","address":"a:1","instance":"i","permits":1`
	data := map[string]string{"get": `"key":"k"`, "getMany": `"keys":["k"]`, "leader": `"name":"n"`, "getService": `"service":"s"`}
	for name, only := range data {
		l.send(fmt.Sprintf(`{"id":2,"func":"%s","data":{%s}}`, name, only))
		l.expectPart(`{"id":2,"data":{`)
		l.send(fmt.Sprintf(`{"id":2,"func":"%s","data":{"namespace":"other",%s}}`, name, only))
		l.expectPart(`"permission_denied"`)
	}
	for name, f := range functions {
		if f.inline != nil || data[name] != "" {
			continue
		}
		// Each function is sent those of the fields that it has.
		var fields []string
		for field := range strings.SplitSeq(keys, `,"`) {
			field = `"` + strings.TrimPrefix(field, `"`)
			if _, err := f.read(jsonLines{}, []byte("{"+field+"}")); err == nil {
				fields = append(fields, field)
			}
		}
		ns := "shop"
		if f.watches != nil {
			ns = "other"
		}
		l.send(fmt.Sprintf(`{"id":3,"func":"%s","data":{"namespace":"%s",%s}}`, name, ns, strings.Join(fields, ",")))
		if got := l.receive(); !strings.Contains(got, `"code":"permission_denied"`) {
			t.Errorf("%s is answered %s", name, got)
		}
	}
}
