package gateway

import (
	"context"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// advertise returns a function that rewrites etcd's answer to MemberList. Each member gets the
// addresses urls, so that clients reach it through the gateway. Learners without client addresses
// get none, because they do not serve clients yet.
func advertise(urls []string) func(context.Context, []byte) ([]byte, error) {
	return func(_ context.Context, answer []byte) ([]byte, error) {
		var r pb.MemberListResponse
		if err := r.Unmarshal(answer); err != nil {
			return nil, fmt.Errorf("gateway: reading etcd's list of members: %w", err)
		}
		for _, m := range r.Members {
			if len(m.ClientURLs) > 0 {
				m.ClientURLs = urls
			}
		}
		b, err := r.Marshal()
		if err != nil {
			return nil, fmt.Errorf("gateway: writing the list of members: %w", err)
		}
		return b, nil
	}
}
