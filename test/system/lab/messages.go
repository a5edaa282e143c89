package lab

import (
	"slices"

	configv1 "github.com/p4lang/p4runtime/go/p4/config/v1"
	"google.golang.org/protobuf/encoding/prototext"

	"github.com/netcraq/netcraq/api/wire"
	"github.com/netcraq/netcraq/internal/testutil/p4proxy"
	"github.com/netcraq/netcraq/p4src"
)

// The functions in this file delay P4Runtime's messages (Layout.Messages).

// startMessages starts a proxy in front of a switch. The proxy knows the names of the program's
// tables.
func (nw *Network) startMessages(target string) *p4proxy.Proxy {
	nw.T.Helper()
	_, b, err := p4src.Compiled(int(nw.Layout.Profile))
	if err != nil {
		nw.T.Fatal(err)
	}
	info := &configv1.P4Info{}
	if err := prototext.Unmarshal(b, info); err != nil {
		nw.T.Fatal(err)
	}
	p, err := p4proxy.Start(p4proxy.Options{Target: target, P4Info: info})
	if err != nil {
		nw.T.Fatal(err)
	}
	nw.T.Cleanup(p.Close)
	return p
}

// Packets matches packet-outs and packet-ins with NetCRAQ packets of the given operations.
func (nw *Network) Packets(ops ...wire.Op) p4proxy.Match {
	return func(m *p4proxy.Message) bool {
		_, payload, err := wire.ParseFrame(m.Payload)
		var p wire.Packet
		return err == nil && p.Unmarshal(payload, nw.Layout.Profile) == nil && slices.Contains(ops, p.Op)
	}
}
