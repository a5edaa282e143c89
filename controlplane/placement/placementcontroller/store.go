package placementcontroller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/client/etcd/placement"
	"github.com/netcraq/netcraq/controlplane/placement/policy"
)

// store is placement's data in etcd, in addition to the placed keys, under the gateways' prefix:
//
//	policy/keys/KEY          {"choice": "pin", ...}: the operator's choice about a key
//	policy/prefixes/PREFIX   ... about all keys that begin with PREFIX
//	plan                     the moves that were decided and are not yet carried out, and the keys
//	                         that stay away
type store struct {
	kv         clientv3.KV
	prefix     string
	conditions []clientv3.Cmp // conditions of every write, which require that this process leads
}

// errNotLeading says that a write's conditions did not hold.
var errNotLeading = errors.New("this controller does not lead any more")

// choice is the stored form of a rule.
type choice struct {
	Choice policy.Choice `json:"choice"`
	Time   time.Time     `json:"time"`
}

// plan is the stored form of the last decision.
type plan struct {
	Moves []policy.Move             `json:"moves"`
	Away  map[string]policy.Absence `json:"away,omitempty"` // absences, by the key in text form
}

func (s *store) ruleName(x policy.Subject) string {
	return s.prefix + "policy/" + map[bool]string{false: "keys/", true: "prefixes/"}[x.Prefix] + x.Name
}

// rules reads the operator's rules. It leaves out unreadable rules, and returns their names.
func (s *store) rules(ctx context.Context) (*policy.Rules, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	prefix := s.prefix + "policy/"
	r, err := s.kv.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil {
		return nil, nil, fmt.Errorf("reading the rules of placement from etcd under %s: %w", prefix, err)
	}
	rules := policy.NewRules(s.prefix)
	var wrong []string
	for _, kv := range r.Kvs {
		kind, name, _ := strings.Cut(strings.TrimPrefix(string(kv.Key), prefix), "/")
		var c choice
		err := json.Unmarshal(kv.Value, &c)
		if err == nil && kind != "keys" && kind != "prefixes" {
			err = errors.New("no rule has such a name")
		}
		if err == nil {
			err = rules.Set(policy.Subject{Name: name, Prefix: kind == "prefixes"}, c.Choice)
		}
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", placement.Printable(string(kv.Key)), err))
		}
	}
	return rules, wrong, nil
}

// dictionary returns the newest version of the gateways' dictionaries (client/etcd/slotcodec). It
// returns 0 if there is no dictionary.
func (s *store) dictionary(ctx context.Context) (uint32, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	prefix := s.prefix + "dictionaries/"
	r, err := s.kv.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return 0, fmt.Errorf("reading the names of dictionaries from etcd under %s: %w", prefix, err)
	}
	newest := uint64(0)
	for _, kv := range r.Kvs {
		// gateways ignore names that are not a version
		if v, err := strconv.ParseUint(strings.TrimPrefix(string(kv.Key), prefix), 10, 32); err == nil {
			newest = max(newest, v)
		}
	}
	return uint32(newest), nil
}

// setRule stores a choice. The choice "" deletes the stored one.
func (s *store) setRule(ctx context.Context, x policy.Subject, c policy.Choice, now time.Time) error {
	op := clientv3.OpDelete(s.ruleName(x))
	if c != "" {
		b, err := json.Marshal(choice{c, now.UTC()})
		if err != nil {
			return err
		}
		op = clientv3.OpPut(s.ruleName(x), string(b))
	}
	if err := s.write(ctx, op); err != nil {
		return fmt.Errorf("writing the rule for %s to etcd: %w", x, err)
	}
	return nil
}

// plan reads the plan, which is empty if none is stored.
func (s *store) plan(ctx context.Context) (*plan, error) {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	r, err := s.kv.Get(ctx, s.prefix+"plan")
	if err != nil {
		return nil, fmt.Errorf("reading the plan of placement from etcd: %w", err)
	}
	p := &plan{}
	if len(r.Kvs) > 0 {
		if err := json.Unmarshal(r.Kvs[0].Value, p); err != nil {
			return nil, fmt.Errorf("the plan of placement in etcd, %splan: %w (delete it: it is made anew)", s.prefix, err)
		}
	}
	return p, nil
}

func (s *store) setPlan(ctx context.Context, p *plan) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := s.write(ctx, clientv3.OpPut(s.prefix+"plan", string(b))); err != nil {
		return fmt.Errorf("writing the plan of placement to etcd: %w", err)
	}
	return nil
}

func (s *store) write(ctx context.Context, op clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	r, err := s.kv.Txn(ctx).If(s.conditions...).Then(op).Commit()
	if err == nil && !r.Succeeded {
		err = errNotLeading
	}
	return err
}
