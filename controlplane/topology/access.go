package topology

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// This file reads the settings of access control (docs/security.md). A host's port has a principal,
// and a key has a realm. A grant says what a principal may do in a realm. Everything that is not
// granted is refused.

// DefaultRealm is the realm of every key that no other realm claims. It is also the principal of
// hosts that the file does not restrict. Such hosts may do everything everywhere.
const DefaultRealm = "default"

// ControllerSessions is how many sessions, starting from 1, the P4 program reserves for the
// controller.
const ControllerSessions = 64

// Realm is the set of keys whose names begin with one of some prefixes. If two realms claim a key,
// the longer prefix wins.
type Realm struct {
	Name     string
	Prefixes []string
}

// Equal reports whether two realms are the same.
func (r Realm) Equal(o Realm) bool { return r.Name == o.Name && slices.Equal(r.Prefixes, o.Prefixes) }

// Grant is a principal's right in a realm. A principal needs no grant for the realm with its own
// name, where it may do everything.
type Grant struct {
	Principal, Realm string
	Read, Write      bool
}

// RealmOf returns the realm of a key, by the key's name.
func (t *Topology) RealmOf(key string) string {
	realm, longest := DefaultRealm, -1
	for _, r := range t.Realms {
		for _, p := range r.Prefixes {
			if len(p) > longest && strings.HasPrefix(key, p) {
				realm, longest = r.Name, len(p)
			}
		}
	}
	return realm
}

// Host returns the first host for which find returns true, or nil if there is none.
func (t *Topology) Host(find func(*Host) bool) *Host {
	if i := slices.IndexFunc(t.Hosts, find); i >= 0 {
		return t.Hosts[i]
	}
	return nil
}

// Open reports whether some host may do everything with any session.
func (t *Topology) Open() bool {
	return t.Host(func(h *Host) bool { return h.Open }) != nil
}

// MaxRate is the highest rate that targets' meters accept, in packets per second.
const MaxRate = 1 << 31

func (p *parser) realms(f *Spec) {
	claimed := map[string]string{}
	for i, r := range f.Realms {
		path := fmt.Sprintf("realms[%d]", i)
		taken := r.Name == DefaultRealm || slices.ContainsFunc(p.t.Realms, func(o Realm) bool {
			return o.Name == r.Name
		})
		if !p.authorityName(path+".name", r.Name, "realm", taken) {
			continue
		}
		if len(r.Prefixes) == 0 {
			p.add(path+".prefixes", r.Name, "give at least one prefix of the names of its keys")
		}
		for j, prefix := range r.Prefixes {
			at := fmt.Sprintf("%s.prefixes[%d]", path, j)
			switch other, ok := claimed[prefix]; {
			case prefix == "":
				p.add(at, r.Name, "an empty prefix would be all keys: those that no realm claims are of the realm %q anyway", DefaultRealm)
			case ok:
				p.add(at, r.Name, "the prefix %q is that of the realm %s", prefix, other)
			}
			claimed[prefix] = r.Name
		}
		p.t.Realms = append(p.t.Realms, Realm{r.Name, slices.Clone(r.Prefixes)})
	}
	if f.HostRate < 0 || f.HostRate > MaxRate {
		p.add("hostRate", fmt.Sprint(f.HostRate), "give packets a second, at most %d, or 0 for no bound", MaxRate)
	}
}

// authority reads a host's principal.
func (p *parser) authority(path string, h *Host, f *HostSpec) {
	h.Rate = p.hostRate
	if f.Rate != nil {
		h.Rate = *f.Rate
		if *f.Rate < 0 || *f.Rate > MaxRate {
			p.add(path+".rate", f.Name, "give packets a second, at most %d, or 0 for no bound", MaxRate)
		}
	}
	// An empty access field is a mistake, and must not make the host unrestricted.
	if f.Access == nil && p.lines[path+".access"] > 0 {
		p.add(path+".access", f.Name, "it is empty: give read or write for each realm, {} for none, or leave it out for a host that may do everything")
	}
	switch {
	case f.Principal == DefaultRealm:
		p.add(path+".principal", f.Name, "%q is the principal of hosts without one: choose another name", DefaultRealm)
	case f.Principal == "" && f.Name == DefaultRealm && f.Access != nil && len(*f.Access) > 0:
		p.add(path+".name", f.Name, "its principal would be %q, that of hosts without one: give it a principal", DefaultRealm)
	case f.Principal != "":
		h.Principal = f.Principal
	case f.Access == nil:
		h.Principal, h.Open = DefaultRealm, true
	case len(*f.Access) > 0:
		h.Principal = h.Name
	}
	if f.Principal != "" || p.lines[path+".principal"] > 0 {
		p.authorityName(path+".principal", f.Principal, "principal", false)
	}
}

// grants collects the grants of hosts. Hosts of one principal share one set of rights.
func (p *parser) grants(f *Spec) {
	said := map[string]string{} // for each principal, the first host that defined its grants
	given := map[string]map[string]string{}
	for i, s := range f.Hosts {
		if s.Access == nil || s.Principal == "" && len(*s.Access) == 0 {
			continue
		}
		path, principal := fmt.Sprintf("hosts[%d].access", i), cmp.Or(s.Principal, s.Name)
		if other, ok := said[principal]; ok {
			if !maps.Equal(given[principal], *s.Access) {
				p.add(path, s.Name, "the host %s is of the principal %s, too, and has other access: hosts of one principal have the same", other, principal)
			}
			continue
		}
		said[principal], given[principal] = s.Name, *s.Access
		for _, realm := range slices.Sorted(maps.Keys(*s.Access)) {
			right := (*s.Access)[realm]
			if realm != DefaultRealm && !slices.ContainsFunc(p.t.Realms, func(r Realm) bool {
				return r.Name == realm
			}) {
				p.add(path, s.Name, "there is no realm %q: list it under realms, or use %q", realm, DefaultRealm)
			}
			if right != "read" && right != "write" {
				p.add(path, s.Name, "the right %q in the realm %s: give read, or write (which is both)", right, realm)
			}
			if realm == principal && right == "read" {
				p.add(path, s.Name, "a principal may do everything in the realm of its own name: give the realm, or the principal, another name")
			}
			p.t.Grants = append(p.t.Grants, Grant{principal, realm, true, right == "write"})
		}
	}
	if p.t.Open() {
		for _, r := range p.t.Realms {
			p.t.Grants = append(p.t.Grants, Grant{DefaultRealm, r.Name, true, true})
		}
	}
	slices.SortFunc(p.t.Grants, func(a, b Grant) int {
		return cmp.Or(strings.Compare(a.Principal, b.Principal), strings.Compare(a.Realm, b.Realm))
	})
}
