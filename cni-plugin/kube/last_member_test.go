package kube

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/netcraq/netcraq/api/admin"
)

// TestLastMember checks that a stopping agent waits while its switch is a chain's last member. It
// must not wait longer if the controller has not answered for a while.
func TestLastMember(t *testing.T) {
	up := func(role, sw string) admin.Member {
		return admin.Member{Switch: sw, Role: role, Ready: true, LeaseLive: true}
	}
	chain := func(keys int, members ...admin.Member) []admin.Chain {
		return []admin.Chain{{Name: "main", Keys: keys, Members: members}}
	}
	alone := chain(3, up("HEAD_TAIL", "n1"))
	two := chain(3, up("HEAD", "n2"), up("TAIL", "n1"))
	deaf := chain(3, admin.Member{Switch: "n2", Role: "HEAD", Ready: true}, up("TAIL", "n1"))
	joining := chain(3, up("HEAD", "n2"), up("TAIL", "n1"), up("SHADOW", "n3"))
	type answer struct {
		from   time.Duration
		chains []admin.Chain
		err    error
	}
	away := errors.New("nobody leads")
	for name, c := range map[string]struct {
		answers []answer
		after   time.Duration
	}{
		"no chain":     {[]answer{{0, nil, nil}}, 0},
		"one of two":   {[]answer{{0, two, nil}}, 0},
		"no member":    {[]answer{{0, chain(3, up("HEAD_TAIL", "n2"), up("NONE", "n1")), nil}}, 0},
		"without keys": {[]answer{{0, chain(0, up("HEAD_TAIL", "n1")), nil}}, 0},
		"alone for a while": {[]answer{{0, alone, nil}, {4 * time.Second, joining, nil},
			{6 * time.Second, two, nil}}, 6 * time.Second},
		"the other is not live": {[]answer{{0, deaf, nil}, {time.Second, two, nil}}, time.Second},
		"alone for good":        {[]answer{{0, alone, nil}}, lastMemberMost},
		"the controller is away": {[]answer{{0, nil, away},
			{3 * time.Second, alone, nil}, {5 * time.Second, two, nil}}, 5 * time.Second},
		"there is no controller": {[]answer{{0, nil, away}}, lastMemberSilence},
		"the controller goes away": {[]answer{{0, alone, nil}, {4 * time.Second, nil, away}},
			4*time.Second + lastMemberSilence},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				l := lastMember{self: "n1", most: lastMemberMost, silence: lastMemberSilence,
					log: slog.New(slog.DiscardHandler), chains: func(context.Context) ([]admin.Chain, error) {
						now := c.answers[0]
						for _, a := range c.answers {
							if time.Since(begin) >= a.from {
								now = a
							}
						}
						return now.chains, now.err
					}}
				l.wait()
				if took := time.Since(begin); took < c.after || took > c.after+2*lastMemberEvery {
					t.Errorf("it ends after %v, want %v", took, c.after)
				}
			})
		})
	}
}
