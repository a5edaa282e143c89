package p4rtserver

import (
	"math"

	p4v1 "github.com/p4lang/p4runtime/go/p4/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/netcraq/netcraq/switch/p4rtserver/translate"
	"github.com/netcraq/netcraq/switch/target"
)

// maxMulticastGroup is the largest value of v1model's 16-bit mcast_grp.
const maxMulticastGroup = math.MaxUint16

func (c *config) writeReplication(typ p4v1.Update_Type,
	e *p4v1.PacketReplicationEngineEntry) error {
	switch t := e.GetType().(type) {
	case *p4v1.PacketReplicationEngineEntry_MulticastGroupEntry:
		return c.writeMulticast(typ, t.MulticastGroupEntry)
	case *p4v1.PacketReplicationEngineEntry_CloneSessionEntry:
		return c.writeClone(typ, t.CloneSessionEntry)
	default:
		return translate.Invalidf(
			"the packet replication engine entry is neither a multicast group nor a clone session")
	}
}

// replicas checks and converts replicas. Each is a list that begins with the replica itself,
// followed by its backups in order of preference. The second result has the replicas in canonical
// form.
func (c *config) replicas(in []*p4v1.Replica) ([][]target.Replica, []*p4v1.Replica, error) {
	out := make([][]target.Replica, 0, len(in))
	kept := make([]*p4v1.Replica, 0, len(in))
	seen := map[target.Replica]bool{}
	for _, r := range in {
		k := proto.Clone(r).(*p4v1.Replica)
		var list []target.Replica
		add := func(port []byte, instance uint32) error {
			if instance > math.MaxUint16 {
				return translate.Invalidf("the instance %d of a replica exceeds 16 bits", instance)
			}
			number, err := c.portOf(port)
			if err != nil {
				return translate.Invalidf("the port of a replica: %s", status.Convert(err).Message())
			}
			t := target.Replica{Port: number, Instance: uint16(instance)}
			if seen[t] {
				return translate.Invalidf("port %d and instance %d are in the list of replicas twice", t.Port,
					t.Instance)
			}
			seen[t] = true
			if len(list) > 0 && list[0].Port == t.Port {
				return translate.Invalidf("a replica of port %d has a backup with the same port", t.Port)
			}
			list = append(list, t)
			return nil
		}
		var port []byte
		switch p := r.PortKind.(type) {
		case *p4v1.Replica_Port:
			port = p.Port
			k.PortKind = &p4v1.Replica_Port{Port: translate.Shorten(port)}
		case *p4v1.Replica_EgressPort: // deprecated, but most controllers still send it
			port = []byte{byte(p.EgressPort >> 24), byte(p.EgressPort >> 16),
				byte(p.EgressPort >> 8), byte(p.EgressPort)}
		default:
			return nil, nil, translate.Invalidf("a replica has no port")
		}
		if err := add(port, r.Instance); err != nil {
			return nil, nil, err
		}
		for _, b := range k.BackupReplicas {
			if err := add(b.Port, b.Instance); err != nil {
				return nil, nil, err
			}
			b.Port = translate.Shorten(b.Port)
		}
		out = append(out, list)
		kept = append(kept, k)
	}
	return out, kept, nil
}

// present returns an error if an INSERT names an existing entity, or if another update names a
// missing entity.
func present(typ p4v1.Update_Type, exists bool, what string, id uint32) error {
	switch {
	case typ == p4v1.Update_INSERT && exists:
		return translate.Errorf(codes.AlreadyExists, "%s %d exists", what, id)
	case typ != p4v1.Update_INSERT && !exists:
		return translate.Errorf(codes.NotFound, "there is no %s %d", what, id)
	}
	return nil
}

func (c *config) writeMulticast(typ p4v1.Update_Type, g *p4v1.MulticastGroupEntry) error {
	if g.MulticastGroupId == 0 {
		return translate.Invalidf("a multicast group needs an id above 0")
	}
	if g.MulticastGroupId > maxMulticastGroup {
		return translate.Invalidf("the multicast group id %d exceeds %d", g.MulticastGroupId,
			maxMulticastGroup)
	}
	if err := present(typ, c.multicast[g.MulticastGroupId] != nil, "multicast group",
		g.MulticastGroupId); err != nil {
		return err
	}
	if typ == p4v1.Update_DELETE {
		if err := c.pipe.SetMulticastGroup(g.MulticastGroupId, nil); err != nil {
			return err
		}
		delete(c.multicast, g.MulticastGroupId)
		delete(c.followers, followerKey{inMulticast, g.MulticastGroupId})
		return nil
	}
	replicas, kept, err := c.replicas(g.Replicas)
	if err != nil {
		return err
	}
	err = c.setReplicas(followerKey{inMulticast, g.MulticastGroupId}, replicas,
		func(r []target.Replica) error { return c.pipe.SetMulticastGroup(g.MulticastGroupId, r) })
	if err != nil {
		return err
	}
	c.multicast[g.MulticastGroupId] = &p4v1.MulticastGroupEntry{
		MulticastGroupId: g.MulticastGroupId, Replicas: kept, Metadata: g.Metadata}
	return nil
}

func (c *config) writeClone(typ p4v1.Update_Type, s *p4v1.CloneSessionEntry) error {
	if s.SessionId == 0 {
		return translate.Invalidf("a clone session needs an id above 0")
	}
	if err := present(typ, c.clones[s.SessionId] != nil, "clone session", s.SessionId); err != nil {
		return err
	}
	if typ == p4v1.Update_DELETE {
		if err := c.pipe.SetCloneSession(s.SessionId, nil); err != nil {
			return err
		}
		delete(c.clones, s.SessionId)
		delete(c.followers, followerKey{inClones, s.SessionId})
		return nil
	}
	if s.PacketLengthBytes < 0 {
		return translate.Invalidf("the packet length %d of clone session %d is negative", s.PacketLengthBytes,
			s.SessionId)
	}
	replicas, kept, err := c.replicas(s.Replicas)
	if err != nil {
		return err
	}
	err = c.setReplicas(followerKey{inClones, s.SessionId}, replicas,
		func(r []target.Replica) error {
			return c.pipe.SetCloneSession(s.SessionId, &target.CloneSession{Replicas: r,
				TruncateTo: int(s.PacketLengthBytes), ClassOfQueue: s.ClassOfService})
		})
	if err != nil {
		return err
	}
	c.clones[s.SessionId] = &p4v1.CloneSessionEntry{
		SessionId: s.SessionId, Replicas: kept, ClassOfService: s.ClassOfService,
		PacketLengthBytes: s.PacketLengthBytes,
	}
	return nil
}

func (c *config) readReplication(q *p4v1.PacketReplicationEngineEntry,
	emit func(*p4v1.Entity)) error {
	send := func(e *p4v1.PacketReplicationEngineEntry) {
		emit(&p4v1.Entity{Entity: &p4v1.Entity_PacketReplicationEngineEntry{
			PacketReplicationEngineEntry: e}})
	}
	groups := func(id uint32) error {
		if id != 0 && c.multicast[id] == nil {
			return translate.Errorf(codes.NotFound, "there is no multicast group %d", id)
		}
		for _, k := range sortedKeys(c.multicast) {
			if id == 0 || k == id {
				send(&p4v1.PacketReplicationEngineEntry{
					Type: &p4v1.PacketReplicationEngineEntry_MulticastGroupEntry{
						MulticastGroupEntry: c.multicast[k]}})
			}
		}
		return nil
	}
	sessions := func(id uint32) error {
		if id != 0 && c.clones[id] == nil {
			return translate.Errorf(codes.NotFound, "there is no clone session %d", id)
		}
		for _, k := range sortedKeys(c.clones) {
			if id == 0 || k == id {
				send(&p4v1.PacketReplicationEngineEntry{
					Type: &p4v1.PacketReplicationEngineEntry_CloneSessionEntry{
						CloneSessionEntry: c.clones[k]}})
			}
		}
		return nil
	}
	switch t := q.GetType().(type) {
	case *p4v1.PacketReplicationEngineEntry_MulticastGroupEntry:
		return groups(t.MulticastGroupEntry.GetMulticastGroupId())
	case *p4v1.PacketReplicationEngineEntry_CloneSessionEntry:
		return sessions(t.CloneSessionEntry.GetSessionId())
	default: // read all groups or sessions
		if err := groups(0); err != nil {
			return err
		}
		return sessions(0)
	}
}
