// Package plan computes the workers that pipelets need, and what they share.
package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

// Reader reads a source for all workers below it.
type Reader struct {
	Source   string  `json:"source"`
	Replica  string  `json:"replica,omitempty"` // replica of the operator; "": pipelets are not distributed
	Interval float64 `json:"interval"`          // seconds
	Flows    []Flow  `json:"flows"`
}

// Flow is computed once for all workers below it, which are of one namespace.
type Flow struct {
	namespace string   // "": there is no query
	Query     string   `json:"query"`           // "": none
	State     string   `json:"state,omitempty"` // if there is one, the flow is computed for each worker
	Workers   []Worker `json:"workers"`
}

// Worker writes to a destination.
type Worker struct {
	Pipelet     string `json:"pipelet"`
	Src         int    `json:"src"`
	Dst         int    `json:"dst"`
	Destination string `json:"destination"`
}

// Key is equal for sources of pipelets that may share a reader: the same store, read at the same
// interval. A source with a Secret is shared only within a namespace.
func Key(p *pipeletapi.Pipelet, src int) string {
	s := p.Spec.Src[src]
	key := []any{s, p.Spec.Interval}
	if s.Etcd != nil && s.Etcd.Secret != "" || s.PostgreSQL != nil && s.PostgreSQL.Secret != "" {
		key = append(key, p.Namespace)
	}
	text, _ := json.Marshal(key) // strings, lists and numbers: it cannot fail
	return string(text)
}

// Query is a flow's text, normalized.
func Query(flow string) string { return strings.TrimRight(strings.TrimSpace(flow), "; \n\t") }

// Readers computes the plan for pipelets. It omits suspended ones.
func Readers(all []pipeletapi.Pipelet) (readers []*Reader) {
	known := map[string]*Reader{}
	for i := range all {
		p := &all[i]
		if p.Spec.Suspend {
			continue
		}
		for s := range p.Spec.Src {
			key := Key(p, s) + p.Status.Assigned // replicas share no reader
			r := known[key]
			if r == nil {
				r = &Reader{Source: describe(p.Spec.Src[s]), Replica: p.Status.Assigned, Interval: p.Spec.Interval}
				known[key] = r
				readers = append(readers, r)
			}
			f := r.flow(p.Namespace, Query(p.Spec.Flow), Query(p.Spec.State))
			for d := range p.Spec.Dst {
				f.Workers = append(f.Workers, Worker{p.Namespace + "/" + p.Name, s, d, describe(p.Spec.Dst[d])})
			}
		}
	}
	return readers
}

func (r *Reader) flow(namespace, query, state string) *Flow {
	if query == "" {
		namespace = ""
	}
	for i := range r.Flows {
		if r.Flows[i].namespace == namespace && r.Flows[i].Query == query && r.Flows[i].State == state {
			return &r.Flows[i]
		}
	}
	r.Flows = append(r.Flows, Flow{namespace: namespace, Query: query, State: state})
	return &r.Flows[len(r.Flows)-1]
}

// describe describes a store in a few words.
func describe(s pipeletapi.Store) string {
	switch {
	case s.Etcd != nil:
		return "etcd " + strings.Join(s.Etcd.Endpoints, ",") + " " + s.Etcd.Prefix
	case s.PostgreSQL != nil:
		return "postgresql " + s.PostgreSQL.Address + "/" + s.PostgreSQL.Database + " " + s.PostgreSQL.Table
	case s.Parquet != nil:
		return "parquet " + s.Parquet.Path
	case s.Chain != nil:
		return "chain " + s.Chain.Namespace + " " + s.Chain.Prefix
	case s.Stream != nil:
		return "stream " + s.Stream.Namespace + "/" + s.Stream.Name
	}
	return "no store"
}

// Print prints a plan in words.
func Print(w io.Writer, readers []*Reader) error {
	flows, workers := 0, 0
	for _, r := range readers {
		flows += len(r.Flows)
		for _, f := range r.Flows {
			workers += len(f.Workers)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "readers %d, flows %d, workers %d\n", len(readers), flows, workers)
	for _, r := range readers {
		fmt.Fprintf(&b, "%s, %s%s\n", r.Source, every(r.Interval), on(r.Replica))
		for _, f := range r.Flows {
			query := "as they are"
			if f.Query != "" {
				query = strings.Join(strings.Fields(f.Query), " ")
			}
			fmt.Fprintf(&b, "  %s\n", query)
			if f.State != "" {
				fmt.Fprintf(&b, "  with the state %s\n", strings.Join(strings.Fields(f.State), " "))
			}
			for _, k := range f.Workers {
				fmt.Fprintf(&b, "    %s to %s\n", k.Pipelet, k.Destination)
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func every(interval float64) string {
	if interval == 0 {
		return "as records come"
	}
	return fmt.Sprintf("every %v s", interval)
}

func on(replica string) string {
	if replica == "" {
		return ""
	}
	return ", on " + replica
}
