package leaderlink

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/netcraq/netcraq/cni-plugin/identity"
	"github.com/netcraq/netcraq/cni-plugin/kube/internal/testutil"
	"github.com/netcraq/netcraq/cni-plugin/kube/netplan"
	"github.com/netcraq/netcraq/internal/testutil/poll"
)

// TestPodsLeftOut checks that invalid entries of a node's list are left out and reported.
func TestPodsLeftOut(t *testing.T) {
	f := NewPodFollower(nil, slog.New(slog.DiscardHandler), nil)
	f.pods["n2"] = netplan.PodList{Malformed: 2, Surplus: 3}
	if pods, wrong := f.All(); len(pods) != 1 || wrong.Total() != 5 || len(wrong) != 2 {
		t.Errorf("%v, left out %v", pods, wrong)
	}
}

// TestFollow checks that the leader knows a node's pods while it is connected to the agent.
// Afterwards it uses the last list. It must accept no other node's list.
func TestFollow(t *testing.T) {
	ca := testutil.NewAuthority(t)
	conf := func(node string) *tls.Config { return ca.Identity(t, node, identity.Switch).Server() }
	l, err := tls.Listen("tcp", "127.0.0.1:0", conf("n1"))
	if err != nil {
		t.Fatal(err)
	}
	serve := func(l net.Listener, lists <-chan []netplan.Pod) *http.Server {
		s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			for {
				select {
				case <-r.Context().Done():
					return
				case p := <-lists:
					_ = json.NewEncoder(w).Encode(p) // if writing fails, the test notices that the list does not arrive
					_ = http.NewResponseController(w).Flush()
				}
			}
		})}
		go func() { _ = s.Serve(l) }() // the server ends with the test
		return s
	}
	lists := make(chan []netplan.Pod)
	server := serve(l, lists)
	defer func() { server.Close() }()
	changed := make(chan struct{}, 100)
	f := NewPodFollower(ca.Identity(t, "leader", identity.Controller).Client(), slog.New(slog.DiscardHandler), func() {
		changed <- struct{}{}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	address := l.Addr().String()
	f.Follow(ctx, map[string]string{"n1": address, "impostor": address}) // the impostor shows the certificate of n1
	one := []netplan.Pod{{IP: netip.MustParseAddr("10.244.0.2"), MAC: "02:00:00:00:00:01", Port: 64}}
	wait := func(what string) {
		t.Helper()
		select {
		case <-changed:
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: nothing was heard", what)
		}
	}
	lists <- one
	wait("the first list")
	lists <- one // the same list again does not count as a change
	lists <- append(one, netplan.Pod{IP: netip.MustParseAddr("10.244.0.3"), MAC: "02:00:00:00:00:02", Port: 65})
	wait("the second list")
	if all, _ := f.All(); len(all["n1"]) != 2 || all["impostor"] != nil || len(changed) != 0 || !f.Alive("n1") || f.Alive("impostor") {
		t.Errorf("%v, %d more changes", all, len(changed))
	}
	server.Close()
	poll.Until(t, 20*time.Second, "an agent that has gone is not taken for alive", func() bool { return !f.Alive("n1") })
	if all, _ := f.All(); len(all["n1"]) != 2 {
		t.Errorf("without the agent: %v", all)
	}
	if l, err = tls.Listen("tcp", address, conf("n1")); err != nil {
		t.Fatal(err)
	}
	lists = make(chan []netplan.Pod) // a new channel, because a request to the closed server may not have ended yet
	server = serve(l, lists)
	lists <- nil
	wait("the list of an agent that is back")
	// The leader's term ends, and another term begins.
	cancel()
	poll.Until(t, 20*time.Second, "a term that has ended follows nobody", func() bool { return !f.Alive("n1") })
	again, end := context.WithCancel(t.Context())
	defer end()
	lists = make(chan []netplan.Pod)
	server.Close()
	if l, err = tls.Listen("tcp", address, conf("n1")); err != nil {
		t.Fatal(err)
	}
	server = serve(l, lists)
	f.Follow(again, map[string]string{"n1": address})
	select {
	case lists <- one:
	case <-time.After(20 * time.Second):
		t.Fatal("in the second term nobody is followed")
	}
	wait("the list of the second term")
	f.Follow(again, nil)
	if all, _ := f.All(); len(all) != 0 {
		t.Errorf("nobody is followed: %v", all)
	}
}

// TestFollowLongHeader checks that the leader refuses an answer whose header is too long.
func TestFollowLongHeader(t *testing.T) {
	ca := testutil.NewAuthority(t)
	l, err := tls.Listen("tcp", "127.0.0.1:0", ca.Identity(t, "n1", identity.Switch).Server())
	if err != nil {
		t.Fatal(err)
	}
	asked := make(chan bool, 100)
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X", strings.Repeat("x", 1<<20))
		_, _ = w.Write([]byte("[]")) // if writing fails, the test notices that the list is not accepted
		asked <- true
	})}
	go func() { _ = s.Serve(l) }()
	defer s.Close()
	f := NewPodFollower(ca.Identity(t, "leader", identity.Controller).Client(), slog.New(slog.DiscardHandler), func() {
		t.Error("a list with a header of 1 MiB was taken")
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f.Follow(ctx, map[string]string{"n1": l.Addr().String()})
	<-asked
	<-asked // the first attempt has failed, and a second one has begun
	if f.Alive("n1") {
		t.Error("an agent with a header of 1 MiB is taken for alive")
	}
}
