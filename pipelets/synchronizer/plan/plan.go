// Package plan computes the workers that pipelets need, and which readers and flows the workers
// share.
package plan

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
)

// Reader is a reader of one source, which all its workers share.
type Reader struct {
	Source   string  `json:"source"`
	Replica  string  `json:"replica,omitempty"` // replica of the operator; empty if pipelets are not distributed
	Interval float64 `json:"interval"`          // length of a window in seconds
	Flows    []Flow  `json:"flows"`
}

// Flow is a flow that is computed once for all its workers. They belong to the same namespace.
type Flow struct {
	namespace string // namespace of the pipelets; empty if there is no query
	Query     string `json:"query"` // the SELECT statement; empty if records are copied unchanged
	// the SELECT statement of the state; if it is set, each worker computes the flow separately
	State   string   `json:"state,omitempty"`
	Workers []Worker `json:"workers"`
}

// Worker writes the rows of a flow to one destination.
type Worker struct {
	Pipelet     string `json:"pipelet"`
	Src         int    `json:"src"`
	Dst         int    `json:"dst"`
	Destination string `json:"destination"`
}

// Key identifies a source. Two sources that may share a reader have the same key. They are the same
// store, read at the same interval. Sources with a Secret are shared only within a namespace.
func Key(p *pipeletapi.Pipelet, src int) string {
	s := p.Spec.Src[src]
	key := []any{s, p.Spec.Interval}
	if s.Etcd != nil && s.Etcd.Secret != "" || s.PostgreSQL != nil && s.PostgreSQL.Secret != "" {
		key = append(key, p.Namespace)
	}
	text, _ := json.Marshal(key) // marshaling cannot fail, because the key has only strings, lists and numbers
	return string(text)
}

// Query returns the text of a flow in a normalized form.
func Query(flow string) string { return strings.TrimRight(strings.TrimSpace(flow), "; \n\t") }

// Readers computes the plan for pipelets. It omits suspended pipelets.
func Readers(all []pipeletapi.Pipelet) (readers []*Reader) {
	known := map[string]*Reader{}
	for i := range all {
		p := &all[i]
		if p.Spec.Suspend {
			continue
		}
		for s := range p.Spec.Src {
			key := Key(p, s) + p.Status.Assigned // include the replica, because replicas share no readers
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

// Print prints a plan as text for people.
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
