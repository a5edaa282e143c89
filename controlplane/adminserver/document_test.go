package adminserver

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3gen"
	"sigs.k8s.io/yaml"

	"github.com/netcraq/netcraq/api/admin"
	"github.com/netcraq/netcraq/internal/refpage"
)

const (
	root       = "../.."
	source     = "`api/admin` and `controlplane/adminserver/routes.go`"
	components = "#/components/schemas/"
)

// TestDocument: docs/reference/admin-api.yaml is up to date with the routes and their types.
func TestDocument(t *testing.T) {
	doc := newGenerator(t).document()
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, err := doc.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]any
	if err := yaml.Unmarshal(b, &parts); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	text.WriteString("# Code generated from " + source + " by make generate; DO NOT EDIT.\n")
	for _, name := range []string{"openapi", "info", "servers", "security", "tags", "paths", "components"} {
		part, err := yaml.Marshal(map[string]any{name: parts[name]})
		if err != nil {
			t.Fatal(err)
		}
		text.Write(part)
		delete(parts, name)
	}
	if len(parts) > 0 {
		t.Errorf("the document has parts that are not written: %v", parts)
	}
	refpage.Check(t, root, "admin-api.yaml", text.String())
}

// generator makes the document, with descriptions from the comments of api/admin.
type generator struct {
	t        testing.TB
	types    map[string]string // comments of types, by the type's name
	fields   map[string]string // comments of fields, by "Type.Field"
	codes    []codeOf
	names    *strings.Replacer     // replaces Go's names of error codes
	requests map[reflect.Type]bool // types of request bodies; the server rejects unknown fields in them
	answers  map[reflect.Type]bool
	schemas  openapi3.Schemas
	structs  []reflect.Type // types that have a schema, in the order of their discovery
}

// codeOf is an error code, with the comment beside it.
type codeOf struct{ name, code, means string }

func newGenerator(t testing.TB) *generator {
	t.Helper()
	g := &generator{t: t, types: map[string]string{}, fields: map[string]string{}, schemas: openapi3.Schemas{},
		requests: map[reflect.Type]bool{}, answers: map[reflect.Type]bool{}}
	files, err := filepath.Glob(root + "/api/admin/*.go")
	must(t, err)
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		must(t, err)
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				for _, spec := range n.Specs {
					if typ, ok := spec.(*ast.TypeSpec); ok {
						g.types[typ.Name.Name] = comment(n.Doc, typ.Doc)
						g.fieldsOf(typ)
					}
				}
			case *ast.ValueSpec:
				if len(n.Values) == 1 && strings.HasPrefix(n.Names[0].Name, "Code") {
					g.code(n)
				}
			}
			return true
		})
	}
	var names []string
	for _, c := range g.codes {
		names = append(names, c.name, "`"+c.code+"`")
	}
	g.names = strings.NewReplacer(names...)
	slices.SortFunc(g.codes, func(a, b codeOf) int { return byStatus(a.code, b.code) })
	for _, r := range routes {
		mark(g.requests, r.body)
		mark(g.answers, r.answer)
	}
	return g
}

// byStatus compares error codes by their HTTP statuses.
func byStatus(a, b string) int {
	return cmp.Or(cmp.Compare(admin.StatusOf(a), admin.StatusOf(b)), cmp.Compare(a, b))
}

// mark adds the struct types that v's type contains.
func mark(in map[reflect.Type]bool, v any) {
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map {
			t = t.Elem()
		}
		if t.Kind() == reflect.Struct && !in[t] {
			in[t] = true
			for _, f := range reflect.VisibleFields(t) {
				visit(f.Type)
			}
		}
	}
	switch v := v.(type) {
	case nil:
	case oneOf:
		for _, each := range v {
			mark(in, each)
		}
	case many:
		mark(in, v.list)
	default:
		visit(reflect.TypeOf(v))
	}
}

// comment returns the text of comments as one line.
func comment(groups ...*ast.CommentGroup) string {
	var all []string
	for _, g := range groups {
		all = append(all, strings.Fields(g.Text())...)
	}
	return strings.Join(all, " ")
}

// sentence turns a comment into a sentence, with a capital letter and a full stop. If the comment
// begins with a Go name, the sentence begins with the JSON name instead.
func sentence(text, goName, jsonName string) string {
	rest, named := strings.CutPrefix(text, goName)
	if next, _ := utf8.DecodeRuneInString(rest); named && jsonName != "" && !unicode.IsLetter(next) {
		text = "`" + jsonName + "`" + rest
	} else if first, size := utf8.DecodeRuneInString(text); size > 0 {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if text != "" && !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

func (g *generator) fieldsOf(typ *ast.TypeSpec) {
	s, ok := typ.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range s.Fields.List {
		for _, name := range f.Names {
			g.fields[typ.Name.Name+"."+name.Name] = comment(f.Doc, f.Comment)
		}
	}
}

func (g *generator) code(n *ast.ValueSpec) {
	value, err := strconv.Unquote(n.Values[0].(*ast.BasicLit).Value)
	if err != nil {
		g.t.Fatal(err)
	}
	said, means, _ := strings.Cut(comment(n.Doc, n.Comment), ":")
	if said != strconv.Itoa(admin.StatusOf(value)) {
		g.t.Errorf("api/admin: the comment of %s says that it goes with status %q, and StatusOf says %d",
			n.Names[0].Name, said, admin.StatusOf(value))
	}
	means = cmp.Or(strings.TrimSpace(means), "a fault of the controller; report it")
	g.codes = append(g.codes, codeOf{n.Names[0].Name, value, sentence(means, "", "")})
}

// jsonField is a struct field in its JSON form.
type jsonField struct {
	reflect.StructField
	name     string
	optional bool // the field is omitted if it is empty
	text     bool // the field is a number in a JSON string
	means    string
}

// jsonFields returns the fields of a struct, with those of embedded structs, in order.
func (g *generator) jsonFields(t reflect.Type) (out []jsonField) {
	for _, f := range reflect.VisibleFields(t) {
		tag := f.Tag.Get("json")
		name, options, _ := strings.Cut(tag, ",")
		if f.Anonymous || name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			g.t.Fatalf("the field %s of %s has no name in JSON", f.Name, t)
		}
		owner := t
		for _, i := range f.Index[:len(f.Index)-1] {
			owner = owner.Field(i).Type
		}
		all := strings.Split(options, ",")
		out = append(out, jsonField{StructField: f, name: name,
			optional: slices.Contains(all, "omitempty") || slices.Contains(all, "omitzero"),
			text:     slices.Contains(all, "string"),
			means:    g.names.Replace(sentence(g.fields[owner.Name()+"."+f.Name], f.Name, name))})
	}
	return out
}

// nullable reports whether the JSON of an empty field is null.
func (f jsonField) nullable() bool {
	kind := f.Type.Kind()
	return !f.optional && (kind == reflect.Slice || kind == reflect.Map || kind == reflect.Pointer)
}

// schema returns the schema of a Go value's type. Structs become components.
func (g *generator) schema(v any) *openapi3.SchemaRef {
	switch v := v.(type) {
	case nil:
		return openapi3.NewSchemaRef("", &openapi3.Schema{Type: &openapi3.Types{"null"}})
	case decimal:
		return openapi3.NewSchemaRef("", openapi3.NewStringSchema().WithPattern("^[0-9]+$"))
	case oneOf:
		s := openapi3.NewSchema()
		for _, each := range v {
			s.OneOf = append(s.OneOf, g.schema(each))
		}
		return openapi3.NewSchemaRef("", s)
	}
	gen := openapi3gen.NewGenerator(openapi3gen.SchemaCustomizer(g.customize), openapi3gen.CreateComponentSchemas(
		openapi3gen.ExportComponentSchemasOptions{ExportComponentSchemas: true, ExportTopLevelSchema: true}))
	ref, err := gen.NewSchemaRefForValue(v, g.schemas)
	if err != nil {
		g.t.Fatal(err)
	}
	return ref
}

// customize adds information that openapi3gen lacks: fields that may be missing or null, and
// descriptions from comments.
func (g *generator) customize(_ string, t reflect.Type, _ reflect.StructTag, s *openapi3.Schema) error {
	s.Nullable = false // OpenAPI 3.1 has no keyword "nullable"
	if kind := t.Kind(); kind >= reflect.Uint8 && kind <= reflect.Uint64 {
		s.Format, s.Max = kind.String(), nil // a double cannot hold the maximum of these types
	}
	if t.Kind() != reflect.Struct || t == reflect.TypeFor[time.Time]() {
		return nil
	}
	if !slices.Contains(g.structs, t) {
		g.structs = append(g.structs, t)
	}
	s.Description = sentence(g.types[t.Name()], "", "")
	if g.requests[t] && !g.answers[t] {
		s.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
	}
	for _, f := range g.jsonFields(t) {
		if f.means == "" {
			g.t.Errorf("api/admin: the field %s of %s has no comment: write what it is", f.Name, t.Name())
		}
		property := s.Properties[f.name]
		if property == nil {
			return fmt.Errorf("openapi3gen has made no property of %s.%s", t, f.Name)
		}
		if !f.optional {
			s.Required = append(s.Required, f.name)
		}
		switch {
		case f.text:
			property = g.schema(decimal(""))
		case strings.HasPrefix(property.Ref, components):
			property = openapi3.NewSchemaRef("", &openapi3.Schema{AllOf: openapi3.SchemaRefs{property}})
		case f.nullable():
			property.Value.Type = &openapi3.Types{(*property.Value.Type)[0], "null"}
		}
		property.Value.Description = f.means
		s.Properties[f.name] = property
	}
	return nil
}

// document makes the whole document.
func (g *generator) document() *openapi3.T {
	doc := &openapi3.T{OpenAPI: "3.1.0",
		Info: &openapi3.Info{Title: "NetCRAQ's admin API", Version: "v1", License: &openapi3.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
			Description: "The controller's API: sessions and keys for clients of the data plane, and what operators call. " +
				"The controller serves it at a Unix socket and over TCP. A client ignores fields of answers that it does not know."},
		Servers: openapi3.Servers{
			{URL: "http://localhost", Description: "Through the Unix socket " + strings.TrimPrefix(admin.SystemSocket, "unix://")},
			{URL: "http://" + admin.DefaultAddress, Description: "Over TCP"}},
		Security: openapi3.SecurityRequirements{{"token": {}}, {}},
		Paths:    openapi3.NewPaths()}
	for _, group := range groups {
		doc.Tags = append(doc.Tags, &openapi3.Tag{Name: group.name, Description: group.does})
	}
	for _, r := range routes {
		item := doc.Paths.Value(r.path)
		if item == nil {
			item = &openapi3.PathItem{}
			doc.Paths.Set(r.path, item)
		}
		item.SetOperation(r.method, g.operation(&r))
	}
	failure := openapi3.NewObjectSchema().WithPropertyRef("error", g.schema(admin.Error{})).WithRequired([]string{"error"})
	var codes []string
	for _, c := range g.codes {
		codes = append(codes, fmt.Sprintf("%d `%s`: %s", admin.StatusOf(c.code), c.code, c.means))
	}
	doc.Components = &openapi3.Components{Schemas: g.schemas,
		Responses: openapi3.ResponseBodies{"Failure": {Value: openapi3.NewResponse().WithJSONSchema(failure).
			WithDescription("A failure. Programs test `code`; `message` is for people. " + strings.Join(codes, " "))}},
		SecuritySchemes: openapi3.SecuritySchemes{"token": {Value: &openapi3.SecurityScheme{Type: "http", Scheme: "bearer",
			Description: "Requests over TCP show the token of `--admin-token`, or, for GET, that of " +
				"`--admin-read-token`. The Unix socket needs no token: the kernel says who the caller is."}}}}
	b, err := doc.MarshalJSON()
	if err != nil {
		g.t.Fatal(err)
	}
	loaded, err := openapi3.NewLoader().LoadFromData(b) // LoadFromData resolves the references
	if err != nil {
		g.t.Fatal(err)
	}
	return loaded
}

// operation makes a route's entry in the document.
func (g *generator) operation(r *route) *openapi3.Operation {
	op := &openapi3.Operation{OperationID: r.id, Tags: []string{r.group}, Responses: openapi3.NewResponsesWithCapacity(2)}
	if first, more, _ := strings.Cut(r.does, ". "); more == "" {
		op.Summary = strings.TrimSuffix(first, ".")
	} else {
		op.Summary, op.Description = first, r.does
	}
	if r.open {
		op.Security = &openapi3.SecurityRequirements{}
	}
	for _, name := range r.pathNames() {
		op.AddParameter(openapi3.NewPathParameter(name).WithDescription(pathParameters[name]).WithSchema(openapi3.NewStringSchema()))
	}
	for _, p := range r.parameters {
		one := &openapi3.Parameter{Name: p.name, In: p.in, Description: p.means, Required: p.required, Schema: g.schema(p.value)}
		if text, ok := p.value.(string); ok && text != "" {
			one.Schema.Value.Enum = []any{text}
		} else if p.value == uint32(1) {
			one.Schema.Value.WithMin(1)
		}
		op.AddParameter(one)
	}
	if r.body != nil {
		op.RequestBody = &openapi3.RequestBodyRef{Value: openapi3.NewRequestBody().WithRequired(true).
			WithJSONSchemaRef(g.schema(r.body))}
	}
	for status, answer := range r.answerByStatus() {
		response := openapi3.NewResponse().WithDescription(http.StatusText(status))
		switch {
		case status == http.StatusNoContent:
		case r.media != "":
			g.schema(r.answer) // adds the schema of each event's type
			response.WithContent(openapi3.NewContentWithSchema(openapi3.NewStringSchema(), []string{r.media}))
		default:
			response.WithJSONSchemaRef(g.schema(answer))
		}
		op.Responses.Set(strconv.Itoa(status), &openapi3.ResponseRef{Value: response})
	}
	for _, status := range append(statuses(r.codes), "default") {
		op.Responses.Set(status, &openapi3.ResponseRef{Ref: "#/components/responses/Failure"})
	}
	return op
}

// answerByStatus returns a route's answers that are not failures, by status.
func (r *route) answerByStatus() map[int]any {
	if r.answer == nil {
		return map[int]any{http.StatusNoContent: nil}
	}
	out := map[int]any{http.StatusOK: r.answer}
	if all, ok := r.answer.(oneOf); ok {
		plain := oneOf{}
		for _, each := range all {
			if list, ok := each.(many); ok {
				out[http.StatusMultiStatus] = list.list
				each = list.list
			}
			plain = append(plain, each)
		}
		out[http.StatusOK] = plain
	}
	return out
}

// statuses returns the HTTP statuses of codes, sorted and without duplicates.
func statuses(codes []string) (out []string) {
	for _, c := range codes {
		out = append(out, strconv.Itoa(admin.StatusOf(c)))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
