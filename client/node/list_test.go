package node

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/netcraq/netcraq/api/nodeapi"
)

// TestListOfAnOldServer checks that if a server does not support list, the error says so, and says
// what to do.
func TestListOfAnOldServer(t *testing.T) {
	f := newFake(t).start()
	f.hook = func(p *peer, r nodeapi.Request) bool {
		p.say(`{"id":%d,"error":{"code":"invalid_argument","message":"there is no function \"list\""}}`, r.ID)
		return true
	}
	_, err := f.connect(Config{}).ListPage(soon(t), "a", "")
	wantCode(t, err, CodeInvalidArgument)
	if !strings.Contains(err.Error(), "the node's server (fake) is older") || !strings.Contains(err.Error(), "watch the prefix") {
		t.Error(err)
	}
}

// TestListEnds checks that List ends even if a server's cursor never changes. A caller that stops
// early causes no request for a further page.
func TestListEnds(t *testing.T) {
	f := newFake(t).start()
	still := true
	f.hook = func(p *peer, r nodeapi.Request) bool {
		var d nodeapi.ListData
		_ = json.Unmarshal(r.Data, &d)
		answer := nodeapi.ListAnswer{Items: []nodeapi.Item{{Key: "k", Found: true, Version: "1.1"}}, Cursor: "c"}
		if !still {
			answer.Cursor = fmt.Sprint(d.Cursor, "c")
		}
		p.answer(r.ID, answer)
		return true
	}
	c, n := f.connect(Config{}), 0
	var failed error
	for _, err := range c.List(soon(t), "") {
		n++
		failed = err
	}
	if n != 2 || CodeOf(failed) != CodeInternal {
		t.Errorf("%d items and errors, the last %v", n, failed)
	}
	still = false
	before := f.count(nodeapi.FuncList)
	for range c.List(soon(t), "") {
		break
	}
	if asked := f.count(nodeapi.FuncList) - before; asked != 1 {
		t.Errorf("%d pages were asked for", asked)
	}
}
