package etcdversion

import (
	"context"
	"errors"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func TestOrdersProgress(t *testing.T) {
	for version, want := range map[string]bool{
		"3.3.27": false, "3.4.0": false, "3.4.23": false, "3.4.24": false, "3.4.25": true, "3.4.37": true,
		"3.5.0": false, "3.5.7": false, "3.5.8-rc.0": false, "3.5.8": true, "3.5.21": true,
		"3.6.0-alpha.0": false, "3.6.0": true, "3.6.16": true, "3.7.0": true, "4.0.0": true,
		"": false, "3": false, "not a version": false,
	} {
		if got := OrdersProgress(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}

func TestOfMember(t *testing.T) {
	status := func(_ context.Context, endpoint string) (*pb.StatusResponse, error) {
		switch endpoint {
		case "a":
			return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: 1}, Version: "3.4.23"}, nil
		case "b":
			return &pb.StatusResponse{Header: &pb.ResponseHeader{MemberId: 2}, Version: "3.6.0"}, nil
		}
		return nil, errors.New("away")
	}
	for member, want := range map[uint64]string{1: "a 3.4.23", 2: "b 3.6.0"} {
		endpoint, version, err := OfMember(t.Context(), member, []string{"c", "a", "b"}, status)
		if got := endpoint + " " + version; err != nil || got != want {
			t.Errorf("member %d: %s, %v; want %s", member, got, err, want)
		}
	}
	if _, _, err := OfMember(t.Context(), 3, []string{"a", "c"}, status); err == nil ||
		!strings.Contains(err.Error(), "c: away") || !strings.Contains(err.Error(), "member 3") {
		t.Errorf("a member that is not there: %v", err)
	}
}
