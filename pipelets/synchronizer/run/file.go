// Package run runs pipelets. It reads files with pipelets, and runs a worker for each pair of
// source and destination.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"sigs.k8s.io/yaml"

	pipeletapi "github.com/netcraq/netcraq/pipelets/api"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flowproc"
	"github.com/netcraq/netcraq/pipelets/synchronizer/stores"
)

// name matches valid names of Kubernetes objects.
var name = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// Load reads the pipelets in files. It fails if a pipelet is not valid.
func Load(ctx context.Context, files []string) (all []pipeletapi.Pipelet, err error) {
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for i, part := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
			var p pipeletapi.Pipelet
			if len(bytes.TrimSpace(part)) == 0 {
				continue
			}
			if err := yaml.UnmarshalStrict(part, &p); err != nil {
				return nil, fmt.Errorf("%s: part %d: %w", file, i+1, err)
			}
			if p.Namespace == "" {
				p.Namespace = "default"
			}
			if err := Check(ctx, &p); err != nil {
				return nil, fmt.Errorf("%s: pipelet %q: %w", file, p.Name, err)
			}
			if seen[p.Namespace+"/"+p.Name] {
				return nil, fmt.Errorf("%s: pipelet %s is there twice", file, p.Name)
			}
			seen[p.Namespace+"/"+p.Name] = true
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(io.ErrUnexpectedEOF, errors.New("the files have no pipelet"))
	}
	return all, nil
}

// Check reports errors in a pipelet.
func Check(ctx context.Context, p *pipeletapi.Pipelet) error {
	switch {
	case p.APIVersion != pipeletapi.APIVersion || p.Kind != pipeletapi.Kind:
		return fmt.Errorf("apiVersion is %q and kind is %q; write apiVersion: %s and kind: %s",
			p.APIVersion, p.Kind, pipeletapi.APIVersion, pipeletapi.Kind)
	case !name.MatchString(p.Name) || !name.MatchString(p.Namespace):
		return fmt.Errorf("metadata: %q in %q is not a name: use lower-case letters, digits, - and .", p.Name, p.Namespace)
	case len(p.Spec.Src) == 0 || len(p.Spec.Dst) == 0:
		return errors.New("spec: src and dst need one store at least")
	case p.Spec.Rate < 0:
		return errors.New("spec.rate: records a second, or 0: as many as there are")
	case p.Spec.State != "" && p.Spec.Flow == "":
		return errors.New("spec.state: it is what a flow keeps, and there is no flow")
	case p.Spec.Interval < 0 || p.Spec.Interval > 86400:
		return errors.New("spec.interval: 0 to 86400 seconds")
	}
	known := map[string]int{}
	for i, s := range p.Spec.Src {
		if err := stores.Check(s, false); err != nil {
			return fmt.Errorf("spec.src[%d]: %w", i, err)
		}
		name := stores.Name(s)
		// refuse the pipelet, because the destination would mix up the positions of the two sources
		if other, ok := known[name]; ok {
			return fmt.Errorf("spec.src[%d]: it has the same name (%s) as spec.src[%d] has, by which a destination "+
				"knows how far it was read: make two pipelets of them", i, name, other)
		}
		known[name] = i
		for j, d := range p.Spec.Dst {
			if err := stores.Check(d, true); err != nil {
				return fmt.Errorf("spec.dst[%d]: %w", j, err)
			}
			if p.Spec.State != "" && (d.Chain != nil || d.Stream != nil) {
				return fmt.Errorf("spec.dst[%d]: a flow's state is kept in etcd, parquet or postgresql: what a chain or a "+
					"stream keeps of a pipelet has no room for it", j)
			}
			if stores.Overlap(s, d) {
				return fmt.Errorf("spec.dst[%d]: it has keys of spec.src[%d]: the pipelet would feed itself", j, i)
			}
		}
	}
	if p.Spec.Flow == "" {
		return nil
	}
	f, err := flowproc.CompileStateful(ctx, p.Spec.Flow, p.Spec.State)
	if err != nil {
		return fmt.Errorf("spec.flow: %w", err)
	}
	return f.Close()
}
