package guardedshell

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// muteEtcd is an etcd cluster in which one member does not answer. The first `mute` requests for a
// lease go to that member.
type muteEtcd struct {
	clientv3.Lease
	clientv3.KV
	mute    int64
	slow    time.Duration // time that the other members take to answer
	granted atomic.Int64
}

func (m *muteEtcd) Grant(ctx context.Context, _ int64) (*clientv3.LeaseGrantResponse, error) {
	n := m.granted.Add(1)
	var answer <-chan time.Time
	if n > m.mute {
		answer = time.After(m.slow)
	}
	select {
	case <-answer:
		return &clientv3.LeaseGrantResponse{ID: clientv3.LeaseID(n)}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (m *muteEtcd) Put(context.Context, string, string, ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return nil, nil
}

func (m *muteEtcd) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (
	<-chan *clientv3.LeaseKeepAliveResponse, error) {
	alive := make(chan *clientv3.LeaseKeepAliveResponse)
	context.AfterFunc(ctx, func() { close(alive) })
	return alive, nil
}

func (m *muteEtcd) Revoke(context.Context, clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	return nil, errors.New("none")
}

// TestSessionOpens checks that an etcd member that does not answer delays a session only by a
// second, not by the session's time to live. A session also opens if etcd takes longer than a
// second to answer.
func TestSessionOpens(t *testing.T) {
	for _, c := range []struct {
		name          string
		mute          int64
		slow, atLeast time.Duration
		atMost        time.Duration
	}{
		{"all answer", 0, 0, 0, 0},
		{"one is mute", 1, 0, time.Second, 1500 * time.Millisecond},
		{"one is mute and asked four times", 4, 0, 4 * time.Second, 7 * time.Second},
		{"all are slow", 0, 6 * time.Second, 6 * time.Second, 40 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := &muteEtcd{mute: c.mute, slow: c.slow}
			client := clientv3.NewCtxClient(t.Context())
			client.Lease, client.KV = m, m
			began := time.Now()
			l := NewLeases(client, "/p/", 0, nil)
			lease, err := l.Current(t.Context())
			took := time.Since(began)
			if err != nil || lease != m.granted.Load() || took < c.atLeast || took > c.atMost {
				t.Errorf("%s: lease %d after %v, %v; want it after %v to %v", c.name, lease, took, err, c.atLeast,
					c.atMost)
			}
			l.Close()
		})
	}
}
