package adminserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"

	"github.com/netcraq/netcraq/api/admin"
)

// filled is a backend and a placement for tests. It answers with values in the fields that its
// function has selects.
type filled struct {
	Backend // nil, because the tests call only overridden methods
	has     func() bool
	err     error
}

// always selects all fields. never selects none.
func always() bool { return true }
func never() bool  { return false }

// atRandom selects fields at random, differently for each seed.
func atRandom(seed uint64) func() bool {
	random := rand.New(rand.NewPCG(seed, 0))
	return func() bool { return random.IntN(2) == 0 }
}

// valueOf makes an answer of a type. A list is never null, because the controller sends an empty
// list instead.
func valueOf[T any](f *filled) (T, error) {
	var out T
	v := reflect.ValueOf(&out).Elem()
	if v.Kind() == reflect.Slice {
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	}
	fill(v, f.has)
	return out, f.err
}

// fill gives values to the fields of v that the function has selects.
func fill(v reflect.Value, has func() bool) {
	if e, ok := v.Addr().Interface().(*admin.Error); ok {
		defer func() { e.Status = admin.StatusOf(e.Code) }()
	}
	if v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[time.Time]() {
		for i := range v.NumField() {
			fill(v.Field(i), has)
		}
		return
	}
	if !has() && v.Kind() != reflect.Interface { // a limit of placement is never null
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), has)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), has)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		element := reflect.New(v.Type().Elem()).Elem()
		fill(element, has)
		v.SetMapIndex(reflect.ValueOf("name"), element)
	case reflect.Struct:
		v.Set(reflect.ValueOf(time.Unix(1e9, 5).UTC()))
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	default:
		if v.CanInt() {
			v.SetInt(-1) // -1 shows that types of fields that cannot be negative are unsigned
		} else {
			v.SetUint(1<<v.Type().Bits() - 1)
		}
	}
}

func (f *filled) Chains(context.Context) ([]admin.Chain, error)        { return valueOf[[]admin.Chain](f) }
func (f *filled) Keys(context.Context, string) ([]admin.Key, error)    { return valueOf[[]admin.Key](f) }
func (f *filled) RemoveKey(context.Context, string, string) error      { return f.err }
func (f *filled) Switches(context.Context) ([]admin.Switch, error)     { return valueOf[[]admin.Switch](f) }
func (f *filled) RemoveUnused(context.Context, string, uint64) error   { return f.err }
func (f *filled) CloseSessions(context.Context, string) error          { return f.err }
func (f *filled) Ready(context.Context) error                          { return f.err }
func (f *filled) Evict(context.Context, admin.PlacementEviction) error { return f.err }
func (f *filled) Show(context.Context) (*admin.Placement, error)       { return pointer[admin.Placement](f) }
func (f *filled) Chain(context.Context, string) (*admin.Chain, error)  { return pointer[admin.Chain](f) }
func (f *filled) Counters(context.Context, string) (*admin.Counters, error) {
	return pointer[admin.Counters](f)
}
func (f *filled) Why(context.Context, string) (*admin.PlacementKey, error) {
	return pointer[admin.PlacementKey](f)
}
func (f *filled) KeepSessions(context.Context, string) (*admin.Sessions, error) {
	return pointer[admin.Sessions](f)
}
func (f *filled) OpenSessions(context.Context, admin.SessionsRequest) (*admin.Sessions, error) {
	return pointer[admin.Sessions](f)
}
func (f *filled) Watch(context.Context, admin.WatchRequest) (*admin.Watch, error) {
	return pointer[admin.Watch](f)
}
func (f *filled) Recover(context.Context, string, string) (*admin.Chain, error) {
	return pointer[admin.Chain](f)
}
func (f *filled) ChangeChain(context.Context, string, admin.ChainChange) (*admin.Chain, error) {
	return pointer[admin.Chain](f)
}
func (f *filled) MoveKey(context.Context, string, string, string) (*admin.Key, error) {
	return pointer[admin.Key](f)
}
func (f *filled) Directory(context.Context, string, bool) ([]admin.Key, error) {
	return valueOf[[]admin.Key](f)
}
func (f *filled) Lookup(context.Context, string, bool) (*admin.Key, error) {
	return pointer[admin.Key](f)
}
func (f *filled) RequestKey(context.Context, admin.KeyRequest) (*admin.RequestedKey, error) {
	return pointer[admin.RequestedKey](f)
}
func (f *filled) Metrics() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = io.WriteString(w, "metric 1\n")
	})
}
func (f *filled) Events(since uint64) ([]admin.Event, <-chan struct{}) {
	events, _ := valueOf[[]admin.Event](f)
	return events, nil
}

// AddKeys answers with one key.
func (f *filled) AddKeys(context.Context, string, []admin.KeySpec) ([]admin.Key, error) {
	key, err := valueOf[admin.Key](f)
	return []admin.Key{key}, err
}

// SetRule may return nil, as it does for the rule of a prefix.
func (f *filled) SetRule(context.Context, admin.PlacementRule) (*admin.PlacementKey, error) {
	return valueOf[*admin.PlacementKey](f)
}

func pointer[T any](f *filled) (*T, error) {
	out, err := valueOf[T](f)
	return &out, err
}

// committed loads docs/reference/admin-api.yaml. It rejects unknown fields, also in answers.
func committed(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromFile(root + "/docs/reference/admin-api.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, s := range doc.Components.Schemas {
		s.Value.AdditionalProperties = openapi3.AdditionalProperties{Has: new(bool)}
	}
	return doc
}

// TestAnswersFitDocument: for every route, the server accepts the requests of
// docs/reference/admin-api.yaml, and its answers and errors match the document.
func TestAnswersFitDocument(t *testing.T) {
	openapi3filter.RegisterBodyDecoder("text/event-stream", openapi3filter.FileBodyDecoder)
	doc := committed(t)
	known := map[string]bool{}
	for _, r := range routes {
		known[r.method+" "+r.path] = true
		item := doc.Paths.Value(r.path)
		if item == nil || item.GetOperation(r.method) == nil {
			t.Errorf("the document does not have %s %s", r.method, r.path)
			continue
		}
		t.Run(r.id, func(t *testing.T) {
			c := call{route: &routers.Route{Spec: doc, Path: r.path, PathItem: item, Method: r.method,
				Operation: item.GetOperation(r.method)}, r: &r}
			if r.serve == nil && r.stream == nil {
				c.byServer(t)
				return
			}
			c.send(t, &filled{has: always}, c.success(true))
			c.send(t, &filled{has: never}, c.success(false))
			for seed := range uint64(8) {
				c.send(t, &filled{has: atRandom(seed)}, 0)
			}
			for _, code := range r.codes {
				c.send(t, &filled{has: never, err: admin.Errorf(code, "a refusal")}, admin.StatusOf(code))
			}
		})
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			if !known[method+" "+path] {
				t.Errorf("the document has %s %s, which the server does not serve", method, path)
			}
		}
	}
}

// call is a route with its entry in the document.
type call struct {
	route *routers.Route
	r     *route
}

// success returns the status of an answer that is not an error. keyErrors says that entries of a
// list of keys have errors.
func (c *call) success(keyErrors bool) int {
	switch {
	case c.r.answer == nil:
		return http.StatusNoContent
	case c.r.id == "addKeys" && keyErrors:
		return http.StatusMultiStatus
	}
	return http.StatusOK
}

// bodies returns values of the types that the route accepts as a body. It returns a nil body for a
// route without one.
func (c *call) bodies() (out []any) {
	types, several := c.r.body.(oneOf)
	if !several {
		types = oneOf{c.r.body}
	}
	for _, typ := range types {
		if typ == nil {
			return []any{nil}
		}
		v := reflect.New(reflect.TypeOf(typ))
		fill(v.Elem(), always)
		out = append(out, v.Interface())
	}
	return out
}

// examples maps a parameter's type, or the value that a route gives for it, to an example.
var examples = map[any]string{false: "true", uint32(1): "3", decimal(""): "18446744073709551615", "": "text", "0": "0"}

// request makes a request with all of the route's parameters.
func (c *call) request(t *testing.T, server string, body any) *openapi3filter.RequestValidationInput {
	t.Helper()
	in := &openapi3filter.RequestValidationInput{Route: c.route,
		PathParams: map[string]string{}, QueryParams: url.Values{},
		Options: &openapi3filter.Options{IncludeResponseStatus: true,
			AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	path := c.r.path
	for _, name := range c.r.pathNames() {
		in.PathParams[name] = "shop/a"
		path = strings.Replace(path, "{"+name+"}", "shop%2Fa", 1)
	}
	header := http.Header{}
	for _, p := range c.r.parameters {
		value := examples[p.value]
		if p.in == "header" {
			header.Set(p.name, value)
		} else {
			in.QueryParams.Set(p.name, value)
		}
	}
	var content io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.NewReader(b)
		header.Set("Content-Type", "application/json")
	}
	request, err := http.NewRequestWithContext(t.Context(), c.r.method, server+path+"?"+in.QueryParams.Encode(), content)
	if err != nil {
		t.Fatal(err)
	}
	request.Header = header
	in.Request = request
	return in
}

// send sends the route's requests to a server with backend f. It compares the requests and the
// answers with the document.
func (c *call) send(t *testing.T, f *filled, status int) {
	t.Helper()
	server := httptest.NewServer(Handler(f, f))
	defer server.Close()
	for i, body := range c.bodies() {
		in := c.request(t, server.URL, body)
		if err := openapi3filter.ValidateRequest(t.Context(), in); err != nil {
			t.Errorf("the document does not allow a request: %v", err)
		}
		want := status
		// for a single key, the answer is that key's error
		if c.r.id == "addKeys" && i == 0 && status == http.StatusMultiStatus {
			want = 0
		}
		c.answer(t, http.DefaultClient, in, want)
	}
}

// answer compares an answer with the document. The document must have an entry for the status,
// unless status is 0, which allows any.
func (c *call) answer(t *testing.T, client *http.Client, in *openapi3filter.RequestValidationInput, status int) {
	t.Helper()
	response, err := client.Do(in.Request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	said := c.route.Operation.Responses.Value(strconv.Itoa(status))
	if status != 0 && (response.StatusCode != status || said == nil) {
		t.Errorf("%s: %s, want %d, and an entry for it in the document", response.Status, b, status)
	}
	out := &openapi3filter.ResponseValidationInput{RequestValidationInput: in, Status: response.StatusCode,
		Header: response.Header, Options: in.Options}
	out.SetBodyBytes(b)
	if err := openapi3filter.ValidateResponse(t.Context(), out); err != nil {
		t.Errorf("the document does not allow the answer %s\n%v", b, err)
	}
	if c.r.media == "text/event-stream" && response.StatusCode == http.StatusOK {
		eventsFit(t, c.route.Spec, string(b))
	}
}

// eventsFit compares the events of a stream with their type.
func eventsFit(t *testing.T, doc *openapi3.T, stream string) {
	t.Helper()
	for line := range strings.Lines(stream) {
		data, ok := strings.CutPrefix(line, "data:")
		if !ok {
			continue
		}
		var event any
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatal(err)
		}
		if err := doc.Components.Schemas["Event"].Value.VisitJSON(event, openapi3.EnableJSONSchema2020()); err != nil {
			t.Errorf("the document does not allow the event %s: %v", data, err)
		}
	}
}

// byServer calls a route that the Server itself serves.
func (c *call) byServer(t *testing.T) {
	s := open(t, nil)
	in := c.request(t, s.url, nil)
	in.Request.Header.Set("Authorization", "Bearer "+s.token)
	c.answer(t, http.DefaultClient, in, http.StatusOK)
}

// TestDocumentExample: the example of docs/reference/admin-api.md leases a session.
func TestDocumentExample(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/reference/admin-api.md")
	must(t, err)
	_, line, found := strings.Cut(string(page), "```console\n$ ")
	line, _, closed := strings.Cut(line, "\n```")
	usual := strings.TrimPrefix(admin.SystemSocket, "unix://")
	if !found || !closed || !strings.Contains(line, usual) {
		t.Fatalf("the page has no example at %s: %q", usual, line)
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("skipped: needs curl")
	}
	s := open(t, nil)
	line = strings.ReplaceAll(line, usual, strings.TrimPrefix(s.socket, "unix://"))
	said, err := exec.CommandContext(t.Context(), "sh", "-c", line).Output()
	var sessions admin.Sessions
	if err = errors.Join(err, json.Unmarshal(said, &sessions)); err != nil || sessions.Lease != "L" {
		t.Errorf("%s says %s, %v", line, said, err)
	}
	if want := "open 1 me "; len(s.backend.asked) != 1 || s.backend.asked[0] != want {
		t.Errorf("the controller was asked for %q, want %q", s.backend.asked, want)
	}
}

// TestDocumentSaysWhoMayAsk checks authentication over TCP: the routes that the document marks as
// open need no token, and all other routes need one. The read-only token suffices only for GET.
func TestDocumentSaysWhoMayAsk(t *testing.T) {
	doc := committed(t)
	s := open(t, nil)
	s.backend.err = admin.Errorf(admin.CodeInvalidArgument, "not in this test")
	for _, r := range routes {
		if r.stream != nil && !r.open {
			continue // the answer of this route does not end, so the test skips it
		}
		op := doc.Paths.Value(r.path).GetOperation(r.method)
		isOpen := op.Security != nil && len(*op.Security) == 0
		changes := r.method != http.MethodGet
		path := strings.NewReplacer("{", "", "}", "").Replace(r.path)
		for token, refused := range map[string]bool{"": !isOpen, s.read: changes, s.token: false} {
			request, err := http.NewRequestWithContext(t.Context(), r.method, s.url+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				request.Header.Set("Authorization", "Bearer "+token)
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			is := response.StatusCode == http.StatusUnauthorized || response.StatusCode == http.StatusForbidden
			if is != refused {
				t.Errorf("%s %s with the token %.4q: %s; refused must be %v", r.method, r.path, token, response.Status, refused)
			}
		}
	}
}
