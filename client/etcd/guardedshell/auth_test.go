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

// whoever is an etcd of which nothing is known but how it answers to who reads as nobody.
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

// ofWhoever asks it by the clock of the test's bubble.
func ofWhoever(w whoever) *Everybody {
	began := time.Now()
	return newEverybody(w, "/netcraq/", newest{}, func() time.Duration { return time.Since(began) })
}

// newest heeds no revision.
type newest struct{}

func (newest) Saw(int64) {}

// Reads are not answered by the network from the moment at which etcd's authentication is enabled
// through the gateway; the answer to that comes when no other gateway answers them either. A
// question that was asked before, and is answered late, changes nothing.
func TestEnabling(t *testing.T) { synctest.Test(t, enabling) }

func enabling(t *testing.T) {
	var enabled, slow atomic.Bool
	var questions atomic.Uint32
	answers := [2]chan struct{}{make(chan struct{}), make(chan struct{})} // while it is enabled, and after that
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
			return rpctypes.ErrUserEmpty // as clientv3 has it
		}
		return nil
	}})
	defer everybody.Close()
	poll.Until(t, 15*time.Second, "everybody may read", everybody.Open)
	slow.Store(true)
	time.Sleep(2 * authEvery) // some are asked, and not answered
	var after time.Time
	if err := everybody.Enabling(t.Context(), func() error {
		if everybody.Open() {
			t.Error("it is not closed before")
		}
		enabled.Store(true)
		slow.Store(false)
		late := func(when string, answers chan struct{}) {
			close(answers) // they say that everybody may read
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
	// Both gateways' clocks may be slewed.
	if d, most := time.Since(after), AuthHolds*11005/8995; d < most {
		t.Errorf("the answer came %v after etcd's: a gateway that is cut off goes on for %v", d, most)
	}
	if everybody.Open() {
		t.Error("it is open")
	}
	// One that fails has nobody wait, and etcd says how it is.
	enabled.Store(false)
	if err := everybody.Enabling(t.Context(), func() error {
		return rpctypes.ErrTimeout
	}); !errors.Is(err, rpctypes.ErrTimeout) {
		t.Error(err)
	}
	poll.Until(t, 15*time.Second, "everybody may read again", everybody.Open)
}

// A gateway that etcd tells nothing any more stops answering from the network when what etcd has
// told last is no longer sure.
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
