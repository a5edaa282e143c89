package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	clientv3   = "go.etcd.io/etcd/client/v3"
	directPath = "github.com/netcraq/netcraq/test/etcdsuite/direct"
	// the package name of direct in rewritten files; no test of etcd uses this name
	directName = "netcraqdirect"
)

// rewritten are the functions of clientv3 that package direct replaces. clientv3.NewKV would return
// a KV that bypasses the client's own KV.
var rewritten = map[string]bool{"New": true, "NewKV": true}

// rewriteTests writes new versions of the test and framework files that make clients, so that the
// clients use client/etcd. It returns the name of the new file for each replaced file.
func (o *options) rewriteTests(chosen []suite) (map[string]string, error) {
	folders := []string{"framework/integration"}
	for _, s := range chosen {
		if s.runs(byClient) {
			folders = append(folders, s.packages...)
		}
	}
	if err := os.RemoveAll(o.path("rewritten")); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, folder := range folders {
		files, err := filepath.Glob(o.path("tests", folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, from := range files {
			src, err := os.ReadFile(from)
			if err != nil {
				return nil, err
			}
			changed, n, err := rewrite(src)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", from, err)
			}
			if n == 0 {
				continue
			}
			to := o.path("rewritten", folder, filepath.Base(from))
			if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
				return nil, err
			}
			if err := os.WriteFile(to, changed, 0o644); err != nil {
				return nil, err
			}
			out[from] = to
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no file of etcd's tests calls %s's New: the tests would run without client/etcd", clientv3)
	}
	return out, nil
}

// rewrite changes the source of a file so that it calls direct's functions instead of clientv3's.
// It returns the new source and the number of changed calls. Line numbers do not change.
func rewrite(src []byte) ([]byte, int, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", src, parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	name := ""
	for _, i := range file.Imports {
		if path, err := strconv.Unquote(i.Path.Value); err == nil && path == clientv3 {
			if name = "clientv3"; i.Name != nil {
				name = i.Name.Name
			}
		}
	}
	if name == "" {
		return src, 0, nil
	}
	at := func(p token.Pos) int { return set.Position(p).Offset }
	var out strings.Builder
	last := at(file.Name.End())
	out.Write(src[:last])
	fmt.Fprintf(&out, "; import %s %q", directName, directPath)
	n := 0
	ast.Inspect(file, func(node ast.Node) bool {
		s, ok := node.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == name && rewritten[s.Sel.Name] {
			out.Write(src[last:at(x.Pos())])
			out.WriteString(directName)
			last = at(x.End())
			n++
		}
		return true
	})
	out.Write(src[last:])
	return []byte(out.String()), n, nil
}
