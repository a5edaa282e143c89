package adminserver

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/refpage"
)

// TestDocumentPage: docs/reference/admin-api.md is up to date with the routes and their types.
func TestDocumentPage(t *testing.T) {
	g := newGenerator(t)
	g.document() // document must run first, because it finds the types
	var page strings.Builder
	page.WriteString(refpage.Head("The admin API", source,
		"The controller's HTTP API. A client of the data plane leases its sessions and finds its keys here,\n"+
			"and operators call the rest, for example through `netcraqctl`. [admin-api.yaml](admin-api.yaml) is the\n"+
			"same as an OpenAPI 3.1 document, from which generators make clients.\n"+
			"[The protocol](../protocol.md#what-a-client-asks-the-controller) explains the calls of such a client\n"+
			"with an example of each.\n\n"+
			"The controller serves the API at a Unix socket, which needs no token because the kernel says who the\n"+
			"caller is, and over TCP with the header `Authorization: Bearer TOKEN`.\n"+
			"[Who may ask the controller](../operations.md#who-may-ask-the-controller) has the details. Bodies and\n"+
			"answers are JSON. A list that is empty may be `null`. The controller refuses a field of a body that it\n"+
			"does not know, and a client ignores fields of answers that it does not know.\n\n"+
			"This leases a session:\n\n"+
			"<!-- not run: TestDocumentExample runs it, at the socket of a test -->\n"+
			"```console\n"+
			"$ curl --unix-socket "+strings.TrimPrefix(admin.SystemSocket, "unix://")+" http://localhost/v1/sessions -d '"+example+"'\n"+
			"```\n\n"+
			"`GET /v1/alive`, by which controllers watch each other, and the files of the controller's page are not\n"+
			"part of the API."))
	for _, group := range groups {
		page.WriteString("\n## " + group.title + "\n\n" + refpage.Paragraph(group.does))
		for _, r := range routes {
			if r.group == group.name {
				g.writeRoute(&page, &r)
			}
		}
	}
	page.WriteString("\n## Errors\n\n" + refpage.Paragraph("A failure has a status of 400 or above, and the body "+
		"`{\"error\": ERROR}` with an [Error](#error). Programs test its `code`. Any request may fail with "+
		"`invalid_argument`, `unauthenticated`, `permission_denied`, `unavailable` and `internal`. Above, each call names "+
		"the further codes that it has.") + "\n" + refpage.Row("status", "code", "meaning") + refpage.Row("---", "---", "---"))
	for _, c := range g.codes {
		page.WriteString(refpage.Row(fmt.Sprint(admin.StatusOf(c.code)), "`"+c.code+"`", c.means))
	}
	page.WriteString("\n" + refpage.Paragraph("Some failures have another status than their code's. `invalid_argument` comes with 403 for a "+
		"request that uses a host name for the controller, or a change that a browser asks for from another site's page. "+
		"It comes with 408 for a body that does not arrive in time, and with 413 for one that is too large.") + "\n## Types\n")
	for _, typ := range g.structs {
		g.writeType(&page, typ)
	}
	refpage.Check(t, root, "admin-api.md", page.String())
}

// example is the body of the page's example.
const example = `{"count": 1, "owner": "me"}`

// writeRoute writes a route's heading, its description, and a table.
func (g *generator) writeRoute(page *strings.Builder, r *route) {
	page.WriteString("\n### " + r.method + " " + r.path + "\n\n" + refpage.Paragraph(r.does) + "\n" +
		refpage.Row("", "type", "meaning") + refpage.Row("---", "---", "---"))
	for _, name := range r.pathNames() {
		page.WriteString(refpage.Row("`{"+name+"}`", "string", pathParameters[name]))
	}
	for _, p := range r.parameters {
		name, means := "`?"+p.name+"=`", p.means
		if p.in == "header" {
			name = "`" + p.name + ":`"
		}
		if p.required {
			means += " Required."
		}
		page.WriteString(refpage.Row(name, typeName(p.value), means))
	}
	if r.body != nil {
		page.WriteString(refpage.Row("body", typeName(r.body), bodySize(r.limit())))
	}
	for _, status := range []int{http.StatusOK, http.StatusMultiStatus, http.StatusNoContent} {
		answer, ok := r.answerByStatus()[status]
		switch {
		case !ok:
		case answer == nil:
			page.WriteString(refpage.Row(fmt.Sprint(status), "", "It is done."))
		case r.media != "":
			page.WriteString(refpage.Row(fmt.Sprint(status), "`"+r.media+"`, "+typeName(answer), ""))
		default:
			page.WriteString(refpage.Row(fmt.Sprint(status), typeName(answer), ""))
		}
	}
	for _, code := range slices.SortedFunc(slices.Values(r.codes), byStatus) {
		page.WriteString(refpage.Row(fmt.Sprint(admin.StatusOf(code)), "[Error](#error)", "`"+code+"`"))
	}
	if r.open {
		page.WriteString("\nIt needs no token.\n")
	}
}

func bodySize(most int64) string {
	if most >= 1<<20 {
		return fmt.Sprintf("%d MiB at most.", most>>20)
	}
	return fmt.Sprintf("%d KiB at most.", most>>10)
}

// typeName returns a JSON type in readable form, with a link to its fields.
func typeName(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case decimal:
		return "digits"
	case oneOf:
		var names []string
		for _, each := range v {
			names = append(names, typeName(each))
		}
		return strings.Join(names, " or ")
	}
	return nameOf(reflect.TypeOf(v))
}

func nameOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return nameOf(t.Elem())
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "base64"
		}
		return "list of " + nameOf(t.Elem())
	case reflect.Map:
		return "object with " + nameOf(t.Elem()) + " by name"
	case reflect.Struct:
		if t == reflect.TypeFor[time.Time]() {
			return "time (RFC 3339)"
		}
		return "[" + t.Name() + "](#" + strings.ToLower(t.Name()) + ")"
	case reflect.Interface:
		return "any"
	case reflect.String:
		return "string"
	case reflect.Bool:
		return "boolean"
	case reflect.Float64:
		return "number"
	default:
		return "integer"
	}
}

// writeType writes the fields of a type.
func (g *generator) writeType(page *strings.Builder, t reflect.Type) {
	page.WriteString("\n### " + t.Name() + "\n\n" + refpage.Paragraph(g.names.Replace(sentence(g.types[t.Name()], "", ""))) + "\n" +
		refpage.Row("field", "type", "meaning") + refpage.Row("---", "---", "---"))
	for _, f := range g.jsonFields(t) {
		name, means := nameOf(f.Type), f.means
		if f.text {
			name = "digits"
		}
		if f.optional {
			name += ", optional"
		}
		page.WriteString(refpage.Row("`"+f.name+"`", name, means))
	}
}
