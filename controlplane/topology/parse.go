package topology

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Error is one mistake in a file.
type Error struct {
	File   string
	Line   int    // 0 if the mistake concerns the file as a whole
	Object string // for example, "switches[2] (s3)"
	Text   string // the mistake, and what to do about it
}

func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s += ":" + strconv.Itoa(e.Line)
	}
	if e.Object != "" {
		s += ": " + e.Object
	}
	return s + ": " + e.Text
}

// Load reads and checks a file. If the file has mistakes, the error joins an *Error for each, in
// the order of their lines.
func Load(path string) (*Topology, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the topology: %w", err)
	}
	t, err := Parse(b, path)
	if err != nil {
		return nil, err
	}
	relativeTo(filepath.Dir(path), &t.Program.JSON, &t.Program.P4Info, &t.TLS.CA, &t.TLS.Cert, &t.TLS.Key)
	return t, nil
}

// parser collects mistakes.
type parser struct {
	name   string
	lines  map[string]int // line of each object, by its path, such as "switches[2].address"
	errors []*Error

	t         *Topology
	hostRate  int
	loopback  bool                  // addresses of 127.0.0.0/8 are allowed
	addresses map[netip.Addr]string // the owner of each address
	macs      map[string]string
}

// Parse reads and checks a file's content. name is for messages.
func Parse(b []byte, name string) (*Topology, error) {
	p := newParser(name)
	f, err := p.read(b)
	if err != nil {
		return nil, err
	}
	// These are mistakes only in a file. A program that calls New may supply its own certificates,
	// and may add chains later.
	for i, s := range f.Switches {
		if s.Server != "" && f.TLS.CA == "" {
			p.add(fmt.Sprintf("switches[%d].serverName", i), s.Name, "a server name is for TLS, and there is none: give p4runtimeTLS with ca at the top of the file")
		}
	}
	if len(f.Chains) == 0 {
		p.add("chains", "", "there are no chains: list at least one under chains")
	}
	return p.check(f)
}

// ReadSpec reads a file for a program that adds to it (the compiled program, chains) before New
// checks it. It makes the file's paths relative to the working directory. It checks only the
// file's form.
func ReadSpec(path string) (Spec, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Spec{}, fmt.Errorf("reading the topology: %w", err)
	}
	p := newParser(path)
	f, err := p.read(b)
	if err == nil {
		err = p.err() // reports unknown fields
	}
	if err != nil {
		return Spec{}, err
	}
	relativeTo(filepath.Dir(path), &f.Program.JSON, &f.Program.P4Info, &f.TLS.CA, &f.TLS.Cert, &f.TLS.Key)
	return *f, nil
}

// relativeTo converts paths that are relative to a file's folder to paths that are relative to the
// working directory.
func relativeTo(dir string, paths ...*string) {
	for _, p := range paths {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(dir, *p)
		}
	}
}

// read parses a file's content, and notes unknown fields.
func (p *parser) read(b []byte) (*Spec, error) {
	if json.Valid(b) { // JSON may be indented by tabs, but YAML may not; in valid JSON, a tab is always white space
		b = bytes.ReplaceAll(b, []byte{'\t'}, []byte{' '})
	}
	var root yaml.Node
	if err := yaml.Unmarshal(b, &root); err != nil {
		return nil, fmt.Errorf("%s: not YAML or JSON: %w", p.name, err)
	}
	if len(root.Content) == 0 || root.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: the file is not a mapping with switches, links, hosts and chains", p.name)
	}
	p.walk(root.Content[0], reflect.TypeFor[Spec](), "")
	var f Spec
	if err := root.Content[0].Decode(&f); err != nil {
		var te *yaml.TypeError
		if !errors.As(err, &te) {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		for _, m := range te.Errors { // for example, "line 3: cannot unmarshal !!str `x` into int"
			line, text, _ := strings.Cut(strings.TrimPrefix(m, "line "), ": ")
			n, _ := strconv.Atoi(line)
			p.errors = append(p.errors, &Error{File: p.name, Line: n, Text: text})
		}
		return nil, p.err() // later checks would only complain about the parts that could not be read
	}
	return &f, nil
}

// New checks a Spec that a program has made. name is its source, for messages. The Spec may have
// no chains yet. Its paths are relative to the working directory.
func New(s Spec, name string) (*Topology, error) {
	return newParser(name).check(&s)
}

func newParser(name string) *parser {
	return &parser{name: name, lines: map[string]int{}, addresses: map[netip.Addr]string{}, macs: map[string]string{},
		t: &Topology{switches: map[string]*Switch{}}}
}

// check checks the Spec and makes the topology.
func (p *parser) check(f *Spec) (*Topology, error) {
	p.loopback = f.Loopback
	p.program(f)
	p.tls(f)
	p.controller(f)
	for i := range f.Switches {
		p.addSwitch(i, &f.Switches[i])
	}
	for i, l := range f.Links {
		p.addLink(i, l)
	}
	p.realms(f)
	p.hostRate = f.HostRate
	for i := range f.Hosts {
		p.addHost(i, &f.Hosts[i])
	}
	p.grants(f)
	for i := range f.Switches {
		p.checkPorts(i, &f.Switches[i])
	}
	for i := range f.Chains {
		p.addChain(i, &f.Chains[i])
	}
	if len(f.Switches) == 0 {
		p.add("switches", "", "there are no switches: list at least one under switches")
	}
	if len(p.errors) == 0 {
		p.checkConnected()
	}
	if err := p.err(); err != nil {
		return nil, err
	}
	return p.t, nil
}

func (p *parser) err() error {
	slices.SortStableFunc(p.errors, func(a, b *Error) int { return a.Line - b.Line })
	var out []error
	for _, e := range p.errors {
		out = append(out, e)
	}
	return errors.Join(out...)
}

// add notes a mistake at a path, such as "switches[2].address". The parameter what is the name of
// the object, such as "s3".
func (p *parser) add(path, what, format string, args ...any) {
	line := p.lines[path]
	for at := path; line == 0 && at != ""; { // for a missing field, use the line of the object that contains it
		at = at[:max(strings.LastIndexAny(at, ".["), 0)]
		line = p.lines[at]
	}
	if what != "" {
		path += " (" + what + ")"
	}
	p.errors = append(p.errors, &Error{File: p.name, Line: line, Object: path, Text: fmt.Sprintf(format, args...)})
}

// walk notes the line of every object and reports unknown fields.
func (p *parser) walk(n *yaml.Node, t reflect.Type, path string) {
	p.lines[path] = n.Line
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case n.Kind == yaml.AliasNode:
		p.walk(n.Alias, t, path)
	case n.Kind == yaml.MappingNode && t.Kind() == reflect.Struct:
		fields := map[string]reflect.Type{}
		for f := range t.Fields() {
			if name := f.Tag.Get("yaml"); name != "-" {
				fields[name] = f.Type
			}
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i].Value
			child := strings.TrimPrefix(path+"."+key, ".")
			ft, ok := fields[key]
			if !ok {
				p.lines[child] = n.Content[i].Line
				p.add(child, "", "there is no such field; the fields here are: %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
				continue
			}
			p.walk(n.Content[i+1], ft, child)
		}
	case n.Kind == yaml.SequenceNode && t.Kind() == reflect.Slice:
		for i, c := range n.Content {
			p.walk(c, t.Elem(), fmt.Sprintf("%s[%d]", path, i))
		}
	}
}
