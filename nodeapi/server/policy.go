package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/netcraq/netcraq/api/node"
)

// Policy is an Authority by a file: rules, of which the first counts that is for a caller and a
// namespace. Where there is none, the caller may do nothing.
type Policy struct {
	name  string
	own   string
	rules []rule
}

// The file, YAML or JSON.
type policyFile struct {
	Rules []policyRule `yaml:"rules"`
}

type policyRule struct {
	// Users and Groups are names or numbers: of the process that has connected, and its primary
	// group. A rule with neither is for everybody, by TCP too.
	Users      []string `yaml:"users"`
	Groups     []string `yaml:"groups"`
	Namespaces []string `yaml:"namespaces"` // "*": all
	May        string   `yaml:"may"`        // nothing, read or write (which is both)
	Own        string   `yaml:"own"`        // the namespace of these callers where they name none
}

type rule struct {
	policyRule
	uids, gids []uint32
}

const (
	mayNothing = "nothing"
	mayRead    = "read"
	mayWrite   = "write"
)

// LoadPolicy reads a policy. own is the namespace of callers for whom no rule has another.
func LoadPolicy(file, own string) (*Policy, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := parsePolicy(f, own)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	p.name = file
	return p, nil
}

func parsePolicy(from io.Reader, own string) (*Policy, error) {
	var read policyFile
	d := yaml.NewDecoder(io.LimitReader(from, 1<<20))
	d.KnownFields(true)
	if err := d.Decode(&read); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	p := &Policy{own: own}
	for i, r := range read.Rules {
		made := rule{policyRule: r}
		err := errors.Join(
			numbers(r.Users, &made.uids, func(name string) (string, error) {
				u, err := user.Lookup(name)
				if err != nil {
					return "", err
				}
				return u.Uid, nil
			}),
			numbers(r.Groups, &made.gids, func(name string) (string, error) {
				g, err := user.LookupGroup(name)
				if err != nil {
					return "", err
				}
				return g.Gid, nil
			}))
		for _, ns := range append(slices.Clone(r.Namespaces), r.Own) {
			if ns != "*" && ns != "" {
				err = errors.Join(err, checkNamespace(ns))
			}
		}
		if !slices.Contains([]string{mayNothing, mayRead, mayWrite}, r.May) {
			err = errors.Join(err, fmt.Errorf("may: %q is none of nothing, read, write", r.May))
		}
		if len(r.Namespaces) == 0 {
			err = errors.Join(err, errors.New(`there are no namespaces ("*": all)`))
		}
		if err != nil {
			return nil, fmt.Errorf("rule %d: %w", i+1, err)
		}
		p.rules = append(p.rules, made)
	}
	return p, nil
}

func numbers(names []string, out *[]uint32, lookUp func(string) (string, error)) error {
	for _, name := range names {
		n, err := strconv.ParseUint(name, 10, 32)
		if err != nil {
			id, err := lookUp(name)
			if err != nil {
				return err
			}
			if n, err = strconv.ParseUint(id, 10, 32); err != nil {
				return err
			}
		}
		*out = append(*out, uint32(n))
	}
	return nil
}

func (r *rule) isFor(p Peer) bool {
	if len(r.Users) == 0 && len(r.Groups) == 0 {
		return true
	}
	return p.Local && (slices.Contains(r.uids, p.UID) || slices.Contains(r.gids, p.GID))
}

// Namespace implements [Authority].
func (p *Policy) Namespace(peer Peer) string {
	for _, r := range p.rules {
		if r.Own != "" && r.isFor(peer) {
			return r.Own
		}
	}
	return p.own
}

// Allow implements [Authority].
func (p *Policy) Allow(_ context.Context, peer Peer, namespace string, write bool) error {
	what := "read"
	if write {
		what = "write"
	}
	for i, r := range p.rules {
		if !r.isFor(peer) || !slices.Contains(r.Namespaces, namespace) && !slices.Contains(r.Namespaces, "*") {
			continue
		}
		if r.May == mayWrite || r.May == mayRead && !write {
			return nil
		}
		return errorf(node.CodePermissionDenied, "ask who keeps the node's policy", "%v may not %s in namespace %s: by rule %d of %s, %s",
			peer, what, namespace, i+1, p.name, r.May)
	}
	return errorf(node.CodePermissionDenied, "ask who keeps the node's policy", "%v may not %s in namespace %s: no rule of %s is for that",
		peer, what, namespace, p.name)
}
