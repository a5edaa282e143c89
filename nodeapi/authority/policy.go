package authority

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Policy contains an operator's rules for callers that are not in a pod, and the quotas. For
// example:
//
//	callers:
//	  - user: alice                    # a name or a number; or group:, or tcp: true, or all: true
//	    namespace: blue                # namespace of requests that name none
//	    access: {blue: write, green: read}
//	quotas:
//	  default: {connections: 100}      # missing fields are as without a policy
//	  blue: {keys: 1000}
//	namespaces:
//	  "*": {durable: false}            # namespaces that are not named here
//	  blue: {durable: true}            # new keys are kept in etcd
//
// The access read includes watch, and write includes read and the creation of keys. The name "*"
// stands for all namespaces. If several entries match a caller, the caller has the rights of all of
// them. The first namespace that such an entry names is the caller's own namespace.
type Policy struct {
	callers []rule
	quotas  map[string]Quota
	base    Quota
	durable map[string]bool
}

type rule struct {
	who       string // the caller that the entry matches, for error messages
	uid, gid  *uint32
	tcp, all  bool
	namespace string
	access    map[string]Access
}

// Access is the access of a caller to a namespace that a policy grants.
type Access int

// These are the values of access in a policy.
const (
	NoAccess Access = iota
	ReadAccess
	WriteAccess
)

// allows reports whether access includes a verb.
func (a Access) allows(v Verb) bool {
	switch v {
	case Read, Watch:
		return a >= ReadAccess
	case Write, Create:
		return a >= WriteAccess
	}
	return false
}

// allNamespaces stands for all namespaces in the access field of a policy.
const allNamespaces = "*"

type policyFile struct {
	Callers []struct {
		User      string            `yaml:"user"`
		Group     string            `yaml:"group"`
		TCP       bool              `yaml:"tcp"`
		All       bool              `yaml:"all"`
		Namespace string            `yaml:"namespace"`
		Access    map[string]string `yaml:"access"`
	} `yaml:"callers"`
	Quotas     map[string]yaml.Node `yaml:"quotas"`
	Namespaces map[string]struct {
		Durable *bool `yaml:"durable"`
	} `yaml:"namespaces"`
}

// Users resolves names of users and groups to their numbers.
type Users interface {
	User(name string) (uint32, error)
	Group(name string) (uint32, error)
}

// System resolves the users and groups of this machine.
type System struct{}

// User implements [Users].
func (System) User(name string) (uint32, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return 0, err
	}
	return number(u.Uid)
}

// Group implements [Users].
func (System) Group(name string) (uint32, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return number(g.Gid)
}

func number(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err
}

// ParsePolicy parses a policy. It rejects a policy with any part that it does not understand,
// because a mistake must not grant or deny more than the operator meant.
func ParsePolicy(text []byte, users Users) (*Policy, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var f policyFile
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, errors.New("a policy is one document: there is more after it")
	}
	p := &Policy{quotas: map[string]Quota{}, base: DefaultQuota, durable: map[string]bool{}}
	for name, n := range f.Namespaces {
		if err := CheckNamespace(name); err != nil && name != allNamespaces {
			return nil, fmt.Errorf("namespaces: %w", err)
		}
		if n.Durable == nil {
			return nil, fmt.Errorf("namespaces: %s: say durable: true, or false", name)
		}
		p.durable[name] = *n.Durable
	}
	for i, c := range f.Callers {
		r := rule{tcp: c.TCP, all: c.All, namespace: c.Namespace, access: map[string]Access{}}
		given := 0
		for _, is := range []bool{c.User != "", c.Group != "", c.TCP, c.All} {
			if is {
				given++
			}
		}
		if given != 1 {
			return nil, fmt.Errorf("caller %d: give one of user, group, tcp and all", i+1)
		}
		var err error
		switch {
		case c.User != "":
			r.who = "user " + c.User
			r.uid, err = resolve(c.User, users.User)
		case c.Group != "":
			r.who = "group " + c.Group
			r.gid, err = resolve(c.Group, users.Group)
		case c.TCP:
			r.who = "tcp"
		default:
			r.who = "all"
		}
		if err != nil {
			return nil, fmt.Errorf("caller %d, %s: %w", i+1, r.who, err)
		}
		if c.Namespace != "" {
			if err := CheckNamespace(c.Namespace); err != nil {
				return nil, fmt.Errorf("caller %d, %s: %w", i+1, r.who, err)
			}
		}
		for n, text := range c.Access {
			if err := CheckNamespace(n); err != nil && n != allNamespaces {
				return nil, fmt.Errorf("caller %d, %s: %w", i+1, r.who, err)
			}
			switch text {
			case "read":
				r.access[n] = ReadAccess
			case "write":
				r.access[n] = WriteAccess
			default:
				return nil, fmt.Errorf("caller %d, %s: namespace %s: access is read or write, not %q", i+1, r.who, n, text)
			}
		}
		p.callers = append(p.callers, r)
	}
	return p, p.readQuotas(f.Quotas)
}

// readQuotas parses the quotas. Fields that are missing in a quota come from the default quota.
// Fields that are missing in the default quota come from DefaultQuota.
func (p *Policy) readQuotas(nodes map[string]yaml.Node) error {
	const base = "default"
	read := func(name string, q Quota) (Quota, error) {
		n := nodes[name]
		b, err := yaml.Marshal(&n)
		if err == nil {
			d := yaml.NewDecoder(bytes.NewReader(b)) // use a decoder, because Node.Decode accepts unknown fields
			d.KnownFields(true)
			err = d.Decode(&q)
		}
		if err == nil {
			err = q.check()
		}
		if err != nil {
			return q, fmt.Errorf("the quota %s: %w", name, err)
		}
		return q, nil
	}
	var err error
	if _, ok := nodes[base]; ok {
		if p.base, err = read(base, p.base); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(nodes)) {
		if name == base {
			continue
		}
		if err := CheckNamespace(name); err != nil && !strings.HasPrefix(name, "uid:") && name != "tcp" {
			return fmt.Errorf("the quota of %s: %w", name, err)
		}
		if p.quotas[name], err = read(name, p.base); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns the number of a user or group by its name. If the name is a number, it returns
// this number.
func resolve(name string, look func(string) (uint32, error)) (*uint32, error) {
	if n, err := number(name); err == nil {
		return &n, nil
	}
	n, err := look(name)
	return &n, err
}

// Quota returns the limits of a subject.
func (p *Policy) Quota(subject string) Quota {
	if q, ok := p.quotas[subject]; ok {
		return q
	}
	return p.base
}

// Durable reports whether etcd stores the new keys of a namespace. The result `said` reports
// whether the policy specifies this.
func (p *Policy) Durable(namespace string) (durable, said bool) {
	if durable, said = p.durable[namespace]; !said {
		durable, said = p.durable[allNamespaces]
	}
	return durable, said
}

// HasDurable reports whether etcd stores the new keys of any namespace.
func (p *Policy) HasDurable() bool {
	for _, durable := range p.durable {
		if durable {
			return true
		}
	}
	return false
}

func (r *rule) is(c Caller) bool {
	switch c.Kind {
	case TCP:
		return r.tcp // "all" covers only callers on this machine
	case Process:
		return r.all || r.uid != nil && *r.uid == c.UID ||
			r.gid != nil && (*r.gid == c.GID || slices.Contains(c.Groups, *r.gid))
	}
	return false
}

// Namespace implements [Authorizer].
func (p *Policy) Namespace(_ context.Context, c Caller) (string, error) {
	known := false
	for i := range p.callers {
		if r := &p.callers[i]; r.is(c) {
			known = true
			if r.namespace != "" {
				return r.namespace, nil
			}
		}
	}
	if !known {
		return "", p.stranger(c)
	}
	return "", nil
}

// Authorize implements [Authorizer].
func (p *Policy) Authorize(_ context.Context, c Caller, v Verb, namespace string) error {
	if err := CheckNamespace(namespace); err != nil {
		return err
	}
	known := false
	for i := range p.callers {
		r := &p.callers[i]
		if !r.is(c) {
			continue
		}
		known = true
		if r.access[namespace].allows(v) || r.access[allNamespaces].allows(v) {
			return nil
		}
	}
	if !known {
		return p.stranger(c)
	}
	return denied(rulePolicy, "have the policy file say so", "%s may not %s keys of namespace %s", c, v, namespace)
}

func (p *Policy) stranger(c Caller) error {
	switch c.Kind {
	case TCP:
		return denied(ruleTCP, "connect to the Unix socket, or have the policy file say what callers by TCP may do (tcp: true)",
			"%s: callers over TCP cannot be identified", c)
	case Process:
		return denied(rulePolicy, "have the policy file name the caller", "the policy does not name %s", c)
	}
	return denied(ruleUnknown, "", "%s", c)
}

// Subject implements [Authorizer]. The subject is the user instead of a namespace, because several
// users may have rights in the same namespace.
func (p *Policy) Subject(c Caller) string { return c.Principal() }

// Files is the Authorizer for a server without a policy. Any process that may open the socket's
// file may do everything. Own is the namespace for requests that name no namespace.
type Files struct{ Own string }

// Namespace implements [Authorizer].
func (f Files) Namespace(_ context.Context, c Caller) (string, error) {
	return f.Own, f.known(c)
}

// Authorize implements [Authorizer].
func (f Files) Authorize(_ context.Context, c Caller, _ Verb, namespace string) error {
	if err := CheckNamespace(namespace); err != nil {
		return err
	}
	return f.known(c)
}

// Subject implements [Authorizer].
func (f Files) Subject(c Caller) string { return c.Principal() }

func (f Files) known(c Caller) error {
	if c.Kind == Process || c.Kind == Pod {
		return nil
	}
	return (&Policy{}).stranger(c)
}
