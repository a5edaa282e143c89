// Package etcdversion knows which guarantees depend on the version of etcd's members.
package etcdversion

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ProgressSince names the first versions for which [OrdersProgress] returns true.
const ProgressSince = "3.4.25, 3.5.8 or 3.6.0"

// OrdersProgress reports whether an etcd of this version answers a request for a watch's progress
// only after all events up to the revision in the answer. Older versions may answer before that
// (etcd issue 15220). An unreadable version counts as older.
func OrdersProgress(version string) bool {
	v, err := semver.NewVersion(version)
	if err != nil {
		return false
	}
	since := semver.Version{Major: 3, Minor: 6}
	if v.Major == 3 {
		switch v.Minor {
		case 4:
			since = semver.Version{Major: 3, Minor: 4, Patch: 25}
		case 5:
			since = semver.Version{Major: 3, Minor: 5, Patch: 8}
		}
	}
	return !v.LessThan(since)
}

// OfMember queries the status of the endpoints in turn until the member with this ID answers, and
// returns the member's endpoint and version. If a stream to that member was open before the query
// and still is, the process at its other end is the process that has answered.
func OfMember(ctx context.Context, member uint64, endpoints []string,
	status func(ctx context.Context, endpoint string) (*pb.StatusResponse, error)) (endpoint, version string,
	err error) {
	var failed []error
	for _, endpoint := range endpoints {
		s, err := status(ctx, endpoint)
		switch {
		case err != nil:
			failed = append(failed, fmt.Errorf("%s: %w", endpoint, err))
		case s.GetHeader().GetMemberId() == member:
			return endpoint, s.Version, nil
		}
	}
	return "", "", errors.Join(append(failed, fmt.Errorf("no endpoint is etcd's member %x", member))...)
}
