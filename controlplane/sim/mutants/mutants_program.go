package mutants

import (
	"github.com/netcraq/netcraq/controlplane/sim/judge"
	"github.com/netcraq/netcraq/controlplane/sim/rules"
)

// These are the places in the source that use the session's registers: the lookup of the record,
// the write of the record, and the version.
const (
	sessionLooks   = "hdr.netcraq.session != 0 && hdr.netcraq.session <"
	sessionWrites  = "meta.session.write && (meta.session.newer || meta.session.anew)"
	sessionRecords = "meta.session.used && (meta.session.newer || meta.session.equal || !meta.session.write ||"
)

// Each mutant in this function removes one rule of the P4 program from the compiled program.
func init() {
	ack := func() expr { return equal(op, opAck) }
	program := func(id, rule string, change func(*edit)) {
		All = append(All, &Mutant{ID: id, Rule: rule, program: change})
	}
	role := func(e *edit, n uint64) any { return equal(e.scalar("chain_role"), number(n)) }
	// commits changes the two conditions for committing a version. The version must be newer than
	// the committed version, and newer than the latest version.
	commits := func(e *edit, change func(old any) any) {
		e.assignFlag("version.p4", "version_newer", "= hdr.netcraq.version > meta.version.committed", 1, change)
		e.assignFlag("version.p4", "version_newest", "= hdr.netcraq.version > meta.version.latest", 1, change)
	}

	program("ACK_OF_ANYTHING", "an ACK cleans its own version only", func(e *edit) {
		e.assign("version.p4", "pair", "pair[127:64] = hdr.netcraq.version", 1, func(any) any {
			return expr{"type": "expression", "value": operation2("|", e.latest(), operation2("<<", e.latest(), number(64)))}
		})
	})
	program("NO_ACK_VERSION", "an ACK that is older than what is committed changes nothing", func(e *edit) {
		commits(e, func(old any) any { return or(old, ack()) })
	})
	All = append(All, &Mutant{ID: "ACK_FROM_ANY", Rule: "ACKs come from the tail alone", program: func(e *edit) {
		// This edit makes a replica acknowledge the writes that it stores, as the tail acknowledges
		// the writes that it commits.
		e.alsoDo(eventWriteStored, "outcome.p4", "acknowledge", "= meta.chain.ack_group != 0")
		e.when("egress.p4", "instance == INSTANCE_ACK", 1, func(old any) any {
			return or(old, and(equal(field("standard_metadata", "egress_rid"), number(1)), equal(op, opWrite)))
		})
	}, Remove: func(r *rules.Removed) { r.AckFromTailAlone = true }})
	program("ACK_WITHOUT_VALUE", "the ACK carries the value", func(e *edit) {
		e.assignOnly("outcome.p4", "object_used", "= meta.version.newer", 1, func(old any) any { return and(old, not(ack())) })
	})
	program("NO_STORE_ORDER", "a node stores only what is newer than its latest", func(e *edit) {
		e.assignFlag("version.p4", "version_newer", "= hdr.netcraq.version > meta.version.latest", 1, always)
		e.assignFlag("version.p4", "version_newest", "= meta.version.newer", 1, always)
	})
	program("NO_COMMIT_ORDER", "the tail commits only what is newer", func(e *edit) {
		commits(e, func(old any) any { return or(old, e.does(chainCommit)) })
	})
	program("REPAIR_BY_ANY_STATUS", "read repair believes OK, CAS_FAILED and NOT_FOUND alone", func(e *edit) {
		e.when("dispatch.p4", "!meta.hearsay && (meta.is_member || meta.chain.role == role_t.SHADOW) && hdr.netcraq", 1, func(old any) any {
			return old.(map[string]any)["value"].(map[string]any)["left"]
		})
	})
	program("READ_COMMITTED_ANYWHERE", "a node that is dirty does not answer with what is committed there", func(e *edit) {
		e.when("outcome.p4", "serve", 1, func(old any) any { return or(old, and(e.flag("is_member"), e.flag("lease_live"))) })
		e.when("outcome.p4", "read_newest", 1, func(old any) any { return and(old, e.flag("is_tail")) })
	})
	program("READ_NEWEST_ANYWHERE", "a node that is dirty does not answer with its newest version, unless it is the tail", func(e *edit) {
		e.when("outcome.p4", "serve", 1, func(old any) any { return or(old, and(e.flag("is_member"), e.flag("lease_live"))) })
	})
	program("TAIL_READS_COMMITTED", "a tail that is dirty answers with its newest version", func(e *edit) {
		e.when("outcome.p4", "read_newest", 1, never)
	})
	program("NO_LEASE", "reads take a live lease", func(e *edit) {
		e.assignFlag("lease.p4", "lease_live", "", 1, always)
	})
	program("NO_SESSION", "the head knows a retry by its session record", func(e *edit) {
		e.assignFlag("session.p4", "session_newer", "= hdr.netcraq.request > recorded", 1, func(old any) any {
			return or(old, equal(request, e.scalar("recorded")))
		})
		e.assignFlag("session.p4", "session_equal", "= hdr.netcraq.request == recorded", 1, never)
	})
	program("NO_OLD_DROP", "the head drops requests that are older than the recorded one", func(e *edit) {
		other := func(any) any { return not(equal(request, e.scalar("recorded"))) }
		e.assignFlag("session.p4", "session_newer", "= hdr.netcraq.request > recorded", 1, other)
		e.when("session.p4", sessionWrites, 1, func(any) any { return and(e.flag("session_write"), other(nil)) })
	})
	program("SESSION_AT_HEAD_ONLY", "every node records the session, not only the head", func(e *edit) {
		e.when("session.p4", sessionLooks, 1, func(old any) any {
			return and(old, or(e.does(chainAssign), e.does(chainSession)))
		})
	})
	program("SESSION_NOT_WHEN_OVERTAKEN", "a node records the session of an overtaken write too", func(e *edit) {
		// The shipped program accesses the session's records before the versions. For a replica
		// that stores, the mutant accesses them after the versions, where the program knows whether
		// the write is newer.
		store := e.does(chainStore)
		looks, writes, records := e.theOne("session.p4", sessionLooks), e.theOne("session.p4", sessionWrites), e.theOne("session.p4", sessionRecords)
		look, write := looks["true_next"].(string), writes["true_next"].(string)
		e.copyNode(records["name"].(string), "late_records", nil)
		e.copyNode(write, "late_write", map[string]string{"base_default_next": "late_records"})
		e.copyNode(writes["name"].(string), "late_writes", map[string]string{"true_next": "late_write", "false_next": "late_records"})
		e.copyNode(look, "late_look", map[string]string{"base_default_next": "late_writes"})
		e.copyNode(looks["name"].(string), "late_looks", map[string]string{"true_next": "late_look", "false_next": records["false_next"].(string)})
		late := e.theNamed("late_looks")
		late["expression"] = and(and(late["expression"], store), e.flag("version_newer"))
		looks["expression"] = and(looks["expression"], not(store))
		records["false_next"] = "late_looks"
	})
	// This mutant has one dirty cell, as in the model. Re-propagation at intervals would hide the
	// violation.
	All = append(All, &Mutant{ID: "DROP_WHEN_FULL", Rule: "when the dirty cells are full the oldest is overwritten, and the write not dropped", program: func(e *edit) {
		e.assignFlag("version.p4", "version_assigned", "= may_assign", 1, func(old any) any { return and(old, not(e.flag("version_dirty"))) })
	}, Remove: func(r *rules.Removed) { r.RedriveStuck = true }, shows: judge.NotWritable})
	program("CAS_FAILED_BY_HEAD", "a CAS that fails is answered by the tail, not the head", func(e *edit) {
		// For a condition on a single metadata flag, p4c quotes the metadata's declaration.
		e.deciding("netcraq.p4", eventCASFailed, eventCASToTail)["expression"] = truth(true)
	})
	cleanOnly := func(e *edit) {
		e.assignFlag("version.p4", "version_assigned", "= may_assign", 1, func(old any) any {
			return and(old, or(equal(op, opWrite), not(e.flag("version_dirty"))))
		})
	}
	All = append(All, &Mutant{ID: "DIRTY_CAS_WAITS",
		Rule: "the head executes a CAS that expects its newest version, whether that is committed or not",
		program: func(e *edit) {
			cleanOnly(e)
			e.when("outcome.p4", "meta.is_tail && meta.version.dirty", 1, func(any) any { return e.flag("version_dirty") })
		}, Implied: "what stays dirty is re-propagated, so a CAS waits, some hundred milliseconds; TestLostAcks shows that"})
	All = append(All, &Mutant{ID: "DIRTY_CAS_SENT_ON",
		Rule: "the head sends a CAS to the tail only if it can never execute it", program: cleanOnly})
	All = append(All, &Mutant{ID: "DIRTY_CAS_FAILS",
		Rule:    "the tail answers RETRY, and not CAS_FAILED, to a CAS that expects what is committed there, or while it is dirty",
		program: func(e *edit) { e.when("outcome.p4", "meta.version.dirty || meta.version.committed ==", 1, never) }})
	All = append(All, &Mutant{ID: "OUTDATED_HEAD", Scenario: "outdated_head",
		Rule: "a head whose slot has a version of a later configuration gives none",
		program: func(e *edit) {
			e.assignFlag("version.p4", "version_outdated", "= meta.version.latest[63:48]", 1, never)
			// p4c replaces the last operand by the condition of "outdated".
			e.assignFlag("version.p4", "version_assigned", "= may_assign", 1, func(old any) any {
				return old.(map[string]any)["value"].(map[string]any)["left"]
			})
		}})
	All = append(All, &Mutant{ID: "OUTDATED_TAIL",
		Implied: "a member commits nothing that it has not accepted, so an old tail never has such a version",
		Rule:    "a tail whose slot has a committed version of a later configuration does not say that a CAS has failed",
		program: func(e *edit) { e.when("outcome.p4", "meta.version.committed[63:48] >", 1, never) }})
	program("NO_EPOCH_ON_CAS", "a STAMPED CAS of another epoch is dropped", func(e *edit) {
		e.when("dispatch.p4", "hdr.netcraq.epoch != meta.chain.epoch", 1, func(old any) any { return and(old, not(equal(op, opCAS))) })
	})
	program("NO_EPOCH", "a STAMPED WRITE of another epoch is dropped", func(e *edit) {
		e.when("dispatch.p4", "hdr.netcraq.epoch != meta.chain.epoch", 1, func(old any) any { return and(old, equal(op, opCAS)) })
	})
	program("LATE_LEASE", "a LEASE counts from a moment that the switch itself named", func(e *edit) {
		late := operation2("+", operation2("&", field("standard_metadata", "ingress_global_timestamp"), number(1<<64-1)), request)
		late = operation2("&", late, number(1<<64-1))
		e.when("lease.p4", "hdr.netcraq.version + (bit<64>)hdr.netcraq.request > expiry", 1, func(any) any { return operation2(">", late, e.scalar("expiry")) })
		e.assign("lease.p4", "expiry", "expiry = hdr.netcraq.version", 1, func(any) any { return expr{"type": "expression", "value": late} })
	})
	program("SHADOW_SERVES", "a shadow answers nobody", func(e *edit) {
		e.when("outcome.p4", "serve", 1, func(old any) any { return or(old, role(e, 5)) })
	})
	program("SYNC_ANYWAY", "SYNC writes only what is newer", func(e *edit) {
		commits(e, func(old any) any { return or(old, equal(op, opSync)) })
	})
	All = append(All, &Mutant{ID: "NO_ACK_HOP", Rule: "an ACK does not go far among switches of another epoch than its own", own: true, Scenario: "ack_storm", tells: "a storm of packets:", program: func(e *edit) {
		e.when("reply.p4", "meta.chain.epoch != hdr.netcraq.epoch", 1, never)
	}})
	// These rules concern the contents of notifications to a watching server, or keep watches from
	// harming other traffic.
	All = append(All, &Mutant{ID: "WATCH_ANY_EPOCH", Rule: "the groups of what is watched are used in the epoch that they were written for alone", own: true, shows: judge.NotSettled,
		program: func(e *edit) {
			e.assignFlag("watch.p4", "of_this_epoch", "of_this_epoch = epoch ==", 1, always)
		}, Remove: func(r *rules.Removed) { r.WatchesStay = true }})
	All = append(All, &Mutant{ID: "TOLD_EARLY", Rule: "servers that watch are told of what is committed alone", own: true, shows: judge.ToldEarly, program: func(e *edit) {
		e.when("watch.p4", "meta.chain.known && !meta.hearsay && (commits", 1, func(old any) any { return or(old, equal(op, opWrite)) })
		e.alsoDo(eventWriteStored, "outcome.p4", "acknowledge", "= meta.watched")
	}})
	// These rules keep hostile hosts from using other hosts' keys and sessions.
	authority := func(id, rule, shows, file, condition string) *Mutant {
		m := &Mutant{ID: id, Rule: rule, shows: shows, program: func(e *edit) { e.when(file, condition, 1, never) }}
		All = append(All, m)
		return m
	}
	authority("NO_ACCESS", "a principal does in a realm what it was granted there, and nothing else", "", "access.p4", "meta.placed && (hdr.ipv4.identification != meta.realm")
	program("ANY_PRINCIPAL", "the first switch says whose a request is, whatever the host has put there", func(e *edit) {
		e.assign("admission.p4", "ipv4.identification", "hdr.ipv4.identification = principal", 2, func(any) any { return field("ipv4", "identification") })
	})
	authority("NO_SESSION_OWNER", "a session is used by the port that it is leased to", judge.NotSettled, "admission.p4", "meta.session_port != meta.ingress_port")
	authority("NO_CLOSED_PORT", "a port without a principal is closed", judge.Intrusion, "admission.p4", "meta.trust == trust_t.CLOSED").own = true
	authority("ANY_SOURCE", "a host sends with its own address alone", "", "admission.p4", "hdr.ipv4.src != meta.port_addr").own = true
	All = append(All, &Mutant{ID: "NO_WINDOW", Rule: "a request far above the recorded one is of another lease, and is not recorded",
		program: func(e *edit) { e.when("session.p4", "meta.session.newer && recorded != 0", 1, never) },
		Implied: "first leases begin at 1 here, so that a lease hardly ever begins below what is late of the one before; the model shows it, and p4src/testdata/scenarios/authority.txt what one switch does"})
	// STAMPED packets carry the epoch of a freeze only if a controller re-propagates in a frozen
	// chain, so this mutant's controller does so.
	All = append(All, &Mutant{ID: "FREEZE_AT_HEAD_ONLY", Rule: "in a frozen chain every node drops STAMPED packets",
		Implied: "a chain is frozen for a recovery only where it has one member, which is its head; the model freezes longer ones", program: func(e *edit) {
			e.deciding("dispatch.p4", eventDropFrozen, 0)["expression"] = truth(false)
		}, Remove: func(r *rules.Removed) { r.RedriveThawed = true }})
}
