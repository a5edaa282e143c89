// Package run runs pipelets: their files, and a worker for each source and destination.
package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"regexp"

	"sigs.k8s.io/yaml"

	api "github.com/netcraq/netcraq/api/pipelet"
	"github.com/netcraq/netcraq/pipelets/synchronizer/flow"
	"github.com/netcraq/netcraq/pipelets/synchronizer/store/etcd"
)

// name is what Kubernetes takes as a name of an object.
var name = regexp.MustCompile(`^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$`)

// Load reads the pipelets of files, and fails where one is not right.
func Load(ctx context.Context, files []string) (all []api.Pipelet, err error) {
	seen := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for i, part := range bytes.Split(append([]byte("\n"), text...), []byte("\n---")) {
			var p api.Pipelet
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
				return nil, fmt.Errorf("%s: pipelet %s: %w", file, p.Name, err)
			}
			if seen[p.Namespace+"/"+p.Name] {
				return nil, fmt.Errorf("%s: pipelet %s is there twice", file, p.Name)
			}
			seen[p.Namespace+"/"+p.Name] = true
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(io.ErrUnexpectedEOF, errors.New("there is no pipelet"))
	}
	return all, nil
}

// Check says what is wrong with a pipelet.
func Check(ctx context.Context, p *api.Pipelet) error {
	switch {
	case p.APIVersion != api.APIVersion || p.Kind != api.Kind:
		return fmt.Errorf("it is of %s, %s, not of %s, %s", p.APIVersion, p.Kind, api.APIVersion, api.Kind)
	case !name.MatchString(p.Name) || !name.MatchString(p.Namespace):
		return fmt.Errorf("metadata: %q in %q is no name", p.Name, p.Namespace)
	case len(p.Spec.Src) == 0 || len(p.Spec.Dst) == 0:
		return errors.New("spec: src and dst need one store at least")
	case p.Spec.Interval < 0 || p.Spec.Interval > 86400:
		return errors.New("spec.interval: 0 to 86400 seconds")
	}
	for i, s := range p.Spec.Src {
		if err := checkStore(s); err != nil {
			return fmt.Errorf("spec.src[%d]: %w", i, err)
		}
		for j, d := range p.Spec.Dst {
			if err := checkStore(d); err != nil {
				return fmt.Errorf("spec.dst[%d]: %w", j, err)
			}
			if etcd.Overlap(*s.Etcd, *d.Etcd) {
				return fmt.Errorf("spec.dst[%d]: it has keys of spec.src[%d]: the pipelet would feed itself", j, i)
			}
		}
	}
	if p.Spec.Flow == "" {
		return nil
	}
	f, err := flow.Compile(ctx, p.Spec.Flow)
	if err != nil {
		return fmt.Errorf("spec.flow: %w", err)
	}
	return f.Close()
}

func checkStore(s api.Store) error {
	if s.Etcd == nil {
		return errors.New("it names no kind of store: etcd")
	}
	if len(s.Etcd.Endpoints) == 0 || s.Etcd.Prefix == "" {
		return errors.New("etcd: endpoints and prefix are needed")
	}
	for _, e := range s.Etcd.Endpoints {
		if u, err := url.Parse(e); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return fmt.Errorf("etcd.endpoints: %q is not http://HOST:PORT or https://HOST:PORT", e)
		}
	}
	if s.Etcd.Secret != "" && !name.MatchString(s.Etcd.Secret) {
		return fmt.Errorf("etcd.secret: %q is no name", s.Etcd.Secret)
	}
	return nil
}
