package authority

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync/atomic"
	"time"
)

// maxPolicy is the maximum size of a policy file, in bytes.
const maxPolicy = 1 << 20

// PolicyFile is an [Authorizer] that reads its policy from a file. It reads the file again when the
// file has changed.
type PolicyFile struct {
	// Own is the namespace of callers for which the policy names no namespace. It must be set
	// before use.
	Own string

	// refuses policies that this server cannot enforce; may be nil
	check func(*Policy) error

	path  string
	users Users
	now   atomic.Pointer[loaded]
}

type loaded struct {
	*Policy
	stamp stamp
}

// stamp identifies a version of a file. It detects that a file was replaced by a new file, which
// editors do, and Kubernetes does for a ConfigMap.
type stamp struct {
	device, inode uint64
	size          int64
	modified      time.Time
}

// OpenPolicy reads a policy file. The function check, if not nil, refuses policies that this server
// cannot enforce. It is called now, and whenever the file changes.
func OpenPolicy(path string, users Users, check func(*Policy) error) (*PolicyFile, error) {
	f := &PolicyFile{path: path, users: users, check: check}
	_, err := f.look()
	return f, err
}

// look reads the file if it has changed, and reports whether the policy has changed.
func (f *PolicyFile) look() (bool, error) {
	file, err := os.Open(f.path)
	if err != nil {
		return false, fmt.Errorf("the policy: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("the policy: %w", err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return false, fmt.Errorf("the policy %s may be written by others than its owner", f.path)
	}
	st := stampOf(info)
	if old := f.now.Load(); old != nil && old.stamp == st {
		return false, nil
	}
	text, err := io.ReadAll(io.LimitReader(file, maxPolicy+1))
	if err != nil {
		return false, fmt.Errorf("the policy: %w", err)
	}
	if len(text) > maxPolicy {
		return false, fmt.Errorf("the policy %s has more than %d bytes", f.path, maxPolicy)
	}
	p, err := ParsePolicy(text, f.users)
	if err == nil && f.check != nil {
		err = f.check(p)
	}
	if err != nil {
		return false, fmt.Errorf("the policy %s: %w", f.path, err)
	}
	f.now.Store(&loaded{p, st})
	return true, nil
}

// Follow checks at an interval whether the file has changed, until ctx ends, and reports changes.
// If a new policy is invalid, Follow logs the error, and the old policy stays in force.
func (f *PolicyFile) Follow(ctx context.Context, every time.Duration, log *slog.Logger, changed func()) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		switch other, err := f.look(); {
		case err != nil && err.Error() != said:
			said = err.Error()
			log.Error("the node API's policy is as it was before", "err", err)
		case other:
			said = ""
			log.Info("the node API's policy has changed", "file", f.path)
			changed()
		}
	}
}

// Namespace implements [Authorizer].
func (f *PolicyFile) Namespace(ctx context.Context, c Caller) (string, error) {
	ns, err := f.now.Load().Namespace(ctx, c)
	if err == nil && ns == "" {
		ns = f.Own
	}
	return ns, err
}

// Authorize implements [Authorizer].
func (f *PolicyFile) Authorize(ctx context.Context, c Caller, v Verb, namespace string) error {
	return f.now.Load().Authorize(ctx, c, v, namespace)
}

// Subject implements [Authorizer].
func (f *PolicyFile) Subject(c Caller) string { return f.now.Load().Subject(c) }

// Quota returns the limits of a subject.
func (f *PolicyFile) Quota(subject string) Quota { return f.now.Load().Quota(subject) }

// Durable returns the result of Policy.Durable for the current policy.
func (f *PolicyFile) Durable(namespace string) (durable, said bool) {
	return f.now.Load().Durable(namespace)
}
