package guardedshell

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// whoever is an etcd client that only answers reads without a user.
type whoever struct {
	clientv3.KV
	answer func(ctx context.Context) error
}

func (w whoever) Get(ctx context.Context, _ string, _ ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := w.answer(ctx); err != nil {
		return nil, err
	}
	return &clientv3.GetResponse{Header: &pb.ResponseHeader{Revision: 1}}, nil
}

// ofWhoever makes an Everybody that asks w. It uses the clock of the test's synctest bubble.
func ofWhoever(w whoever) *Everybody {
	began := time.Now()
	return newEverybody(w, "/netcraq/", newest{}, func() time.Duration { return time.Since(began) })
}

type newest struct{}

func (newest) Saw(int64) {}

// From the moment at which a client enables etcd's authentication through the gateway, no slot
// answers reads. The client gets its answer when no other gateway lets slots answer reads either. A
// late answer to an earlier question changes nothing.
func TestEnabling(t *testing.T) { synctest.Test(t, enabling) }

func enabling(t *testing.T) {
	var enabled, slow atomic.Bool
	var questions atomic.Uint32
	// A slow question waits for one of these two channels, in turn. Closing a channel answers its
	// questions.
	answers := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
	everybody := ofWhoever(whoever{answer: func(ctx context.Context) error {
		refused := enabled.Load()
		if slow.Load() {
			select {
			case <-answers[questions.Add(1)%2]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if refused {
			return rpctypes.ErrUserEmpty // clientv3 returns the refusal in this form
		}
		return nil
	}})
	defer everybody.Close()
	poll.Until(t, 15*time.Second, "everybody may read", everybody.Open)
	slow.Store(true)
	time.Sleep(2 * authEvery) // meanwhile, some questions are sent and get no answer
	var after time.Time
	if err := everybody.Enabling(t.Context(), func() error {
		if everybody.Open() {
			t.Error("it is not closed before")
		}
		enabled.Store(true)
		slow.Store(false)
		late := func(when string, answers chan struct{}) {
			close(answers) // all these answers say that everybody may read
			synctest.Wait()
			if everybody.Open() {
				t.Errorf("an answer that came late %s opens it", when)
			}
		}
		late("while it is enabled", answers[0])
		after = time.Now()
		time.AfterFunc(time.Millisecond, func() { late("after it was enabled", answers[1]) })
		return nil
	}); err != nil {
		t.Error(err)
	}
	// The limit allows for slewed clocks of both gateways.
	if d, most := time.Since(after), AuthHolds*11005/8995; d < most {
		t.Errorf("the answer came %v after etcd's: a gateway that is cut off goes on for %v", d, most)
	}
	if everybody.Open() {
		t.Error("it is open")
	}
	// If the request to enable authentication fails, it delays no reads, and etcd's answers decide
	// again.
	enabled.Store(false)
	if err := everybody.Enabling(t.Context(), func() error {
		return rpctypes.ErrTimeout
	}); !errors.Is(err, rpctypes.ErrTimeout) {
		t.Error(err)
	}
	poll.Until(t, 15*time.Second, "everybody may read again", everybody.Open)
}

// When a gateway gets no more answers from etcd, it stops reading slots as soon as the last answer
// is no longer valid.
func TestCutOff(t *testing.T) { synctest.Test(t, cutOff) }

func cutOff(t *testing.T) {
	var silent atomic.Bool
	everybody := ofWhoever(whoever{answer: func(ctx context.Context) error {
		if silent.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}})
	defer everybody.Close()
	poll.Until(t, 15*time.Second, "everybody may read", everybody.Open)
	silent.Store(true)
	began := time.Now()
	poll.Until(t, 15*time.Second, "it is not sure any more", func() bool { return !everybody.Open() })
	if d := time.Since(began); d > 2*AuthHolds || d < AuthHolds-2*authEvery {
		t.Errorf("after %v", d)
	}
	silent.Store(false)
	poll.Until(t, 15*time.Second, "everybody may read again", everybody.Open)
}
