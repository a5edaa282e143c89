// Package etcdversion says what the versions of etcd's members can be relied upon for.
package etcdversion

import (
	"context"
	"errors"
	"fmt"

	"github.com/coreos/go-semver/semver"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// ProgressSince names the first versions for which [OrdersProgress] holds.
const ProgressSince = "3.4.25, 3.5.8 or 3.6.0"

// OrdersProgress says whether an etcd of this version answers a request for a watch's progress
// after all events up to the revision in the answer. Older ones may answer before them (etcd issue
// 15220). A version that cannot be read counts as older.
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

// OfMember asks the endpoints in turn, by status, until the member with this ID answers, and gives
// its endpoint and version. A stream that was open before the question and still is has its other
// end in the process that answered.
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
