package world

import (
	"errors"
	"fmt"
	"time"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/client/calls"
	"github.com/netcraq/netcraq/controlplane/sim/judge"
)

// slotSaid records the first answer to clients that a KEY_ID has no slot.
type slotSaid struct {
	none time.Duration // when a client first got the answer that the KEY_ID has no slot; 0: none did
	what string
	// moved says that the controller has tried to move the key. The KEY_ID then disappears at one
	// switch after the other, and may come back. Clients must not trust "no slot" in that case
	// (docs/protocol.md, "Moving keys").
	moved bool
}

// hear checks a client's answer about a KEY_ID's slot. Somebody may get the answer that the KEY_ID
// has no slot (NOT_FOUND without a version, to a read or a write). After that, no later call at any
// switch may find a value, or report a write as done. EVENTUAL reads may go back in time.
func (w *World) hear(who string, k *call, r calls.Result) {
	said := w.slotsSaid[k.req.Key]
	if said == nil {
		said = &slotSaid{}
		w.slotsSaid[k.req.Key] = said
	}
	var e *calls.OpError
	none, there := false, r.Err == nil
	version := r.Version
	if errors.As(r.Err, &e) {
		// (A key that is being added has no slot for clients, until its entries are open.)
		none = errors.Is(e, calls.ErrNotFound) && e.Version == 0 && w.opened[k.req.Key]
		there = errors.Is(e, calls.ErrCASFailed) && e.Found
		version = e.Version
	}
	w.told(who, k, version)
	switch {
	case k.op.Eventual || said.moved:
	case none && said.none == 0:
		said.none, said.what = w.Loop.Now, k.op.Request()+" by "+who
	case there && said.none != 0 && said.none < k.at && len(w.Contradicted) == 0:
		w.Contradicted = append(w.Contradicted, judge.Violation{Kind: judge.NoSlotAndYet, Key: k.op.Key,
			What: fmt.Sprintf("%s: %v has no slot, said at %v; %s by %s, begun at %v and answered at %v: version %v",
				said.what, k.req.Key, said.none, k.op.Request(), who, k.at, w.Loop.Now, r.Version)})
	}
}

// told records an answer with a version of a KEY_ID whose entries are not open. Before they are
// opened, the slot may hold leftovers of another key, and the controller may have to repeat its
// write.
func (w *World) told(who string, k *call, v wire.Version) {
	if v == 0 || w.opened[k.req.Key] || len(w.Contradicted) > 0 {
		return
	}
	w.Contradicted = append(w.Contradicted, judge.Violation{Kind: judge.SeenHidden, Key: k.op.Key,
		What: fmt.Sprintf("%s by %s was told version %v of %v at %v, and its entries are not open", k.op.Request(), who, v,
			k.req.Key, w.Loop.Now)})
}
