package admin

// EventType describes one type of events. Type is the value of Event.Type.
type EventType struct {
	Type    string // for example "chain.failover"
	Meaning string // what has happened, as a sentence
	Do      string // what an operator should do; empty if nothing
}

// EventTypes are all types of events that a controller emits, in alphabetical order. The page
// docs/reference/events.md is generated from them, and a test compares them with the code.
var EventTypes = []EventType{
	{
		"chain.added",
		"The controller has added a chain, because the topology file has a new one.",
		"",
	},
	{
		"chain.adopted",
		"The controller had no valid record of the chain, and has taken over the configuration that the switches run.",
		"",
	},
	{
		"chain.compared",
		"The controller has compared a joining switch with the tail, and has written the values and session " +
			"records that the switch lacked.",
		"",
	},
	{
		"chain.copied",
		"The controller has copied the tail's values and session records to a joining switch.",
		"",
	},
	{
		"chain.differs",
		"The chain keeps its recorded or running configuration, which differs from the topology file.",
		"If the file is right, change the chain with `netcraqctl chain set`. Otherwise correct the file.",
	},
	{
		"chain.epoch",
		"A switch has a later epoch than the controller's record, so the record is outdated, and the controller " +
			"takes the configuration from the switches.",
		"If a member is gone for good, remove it from the topology file. Start controllers only with their newest state.",
	},
	{
		"chain.epochs",
		"The chain has used at least half of its epochs; the message says how many, or that none is left.",
		"Find the switch that comes and goes. Before the epochs are used up, begin again with emptied switches.",
	},
	{
		"chain.failover",
		"The controller has given up members that failed or leave the network, and continues the chain without them.",
		"If the switch failed, restart or replace it. If `rejoinMillis` is 0, run `netcraqctl chain recover` then.",
	},
	{
		"chain.fenced",
		"A switch that is out of reach can no longer answer for the chain: its lease has run out, or, in a chain " +
			"without leases, the controller assumes that it has stopped.",
		"If the chain has no leases, make sure that the switch has stopped.",
	},
	{
		"chain.full",
		"All intended members are in the chain again.",
		"",
	},
	{
		"chain.installed",
		"All members have the chain's configuration.",
		"",
	},
	{
		"chain.installing",
		"The controller has recorded a configuration of the chain, and begins to install it in the switches.",
		"",
	},
	{
		"chain.lease-not-changed",
		"The chain keeps its lease, because the controller could not change it to the topology file's.",
		"Remove the cause in the message, then run `netcraqctl chain set --lease`.",
	},
	{
		"chain.left-out",
		"The controller has begun the chain without a switch that may hold outdated values.",
		"If `rejoinMillis` is 0, run `netcraqctl chain recover`. Otherwise nothing.",
	},
	{
		"chain.lost",
		"All switches have lost the chain's values, so keys read NOT_FOUND until somebody writes them again.",
		"Write the values again.",
	},
	{
		"chain.lost-member",
		"A member has lost its values, because it was restarted or emptied, and the controller continues the " +
			"chain without it.",
		"If `rejoinMillis` is 0, run `netcraqctl chain recover`. Otherwise nothing.",
	},
	{
		"chain.not-drained",
		"The chain did not finish the writes that were under way, so the controller has not changed its order.",
		"Change the order again with `netcraqctl chain set --members`.",
	},
	{
		"chain.not-ready",
		"The chain is not ready, because it is being changed, or because a member lacks its configuration or a live " +
			"lease.",
		"If it lasts for more than a few seconds, `netcraqctl chain show` names the cause.",
	},
	{
		"chain.not-recovered",
		"The controller has given up bringing a switch into the chain.",
		"If an operator asked for it, remove the cause in the message, and run `netcraqctl chain recover` again.",
	},
	{
		"chain.not-redriven",
		"The controller could not send unfinished writes down the chain again, and tries again.",
		"If it repeats, find out why the switch in the message does not answer.",
	},
	{
		"chain.not-rejoined",
		"The controller could not bring a lost member into the chain again, and tries again later.",
		"If it repeats, remove the cause in the message.",
	},
	{
		"chain.ready",
		"The chain is ready: every member has the configuration and a live lease.",
		"",
	},
	{
		"chain.recovered",
		"A switch that the controller brought in is now a member of the chain.",
		"",
	},
	{
		"chain.recovering",
		"The controller is bringing a switch into the chain: it empties the switch, or begins to fill it.",
		"",
	},
	{
		"chain.recovery-abandoned",
		"The controller has found a recovery that an earlier controller did not finish, and continues the chain " +
			"without the joining switch.",
		"If the switch was not a lost member, run `netcraqctl chain recover` again.",
	},
	{
		"chain.reinstall",
		"A member of a chain without keys has lost its configuration, and the controller sets it up again.",
		"",
	},
	{
		"chain.rejoining",
		"A lost member has been steady for long enough, and the controller brings it in again.",
		"",
	},
	{
		"chain.removed",
		"The controller has removed a chain without keys, because the topology file no longer has it.",
		"",
	},
	{
		"chain.takeover",
		"The controller has found the switches in the middle of a change, and continues with the members that have " +
			"the chain's values.",
		"",
	},
	{
		"chain.thawed",
		"The controller ends a freeze of the chain, because a comparison with a joining switch took too long, or " +
			"because an earlier controller did not finish a change of the order.",
		"If no switch is named, change the order again with `netcraqctl chain set --members`.",
	},
	{
		"chain.waiting",
		"The chain waits for the condition in the message, for example for a switch to connect.",
		"If it lasts, fulfil the condition. The message says so if the chain waits for an operator.",
	},
	{
		"controller.deposed",
		"This controller has stopped changing switches, because another one has taken over.",
		"With several controllers on one etcd, nothing. Otherwise decide which controller is to run, stop the " +
			"other, and restart the one that stays.",
	},
	{
		"controller.held-up",
		"The controller did what was due too late, so leases may run out and reads may wait.",
		"If it repeats, give the controller's machine less other work or more processor time.",
	},
	{
		"keys.added",
		"The controller has added keys to the chain. While it moves a key, it reports the copy as `moving:NAME`.",
		"",
	},
	{
		"keys.adopted",
		"The controller has found keys in the switches whose names no record has, and lists them by their KEY_IDs, " +
			"as `keyid:0x...`.",
		"Start controllers only with their newest state. Remove the listed keys that nobody uses.",
	},
	{
		"keys.failed",
		"The controller could not add or remove keys.",
		"Remove the cause in the message, and repeat the request.",
	},
	{
		"keys.forgotten",
		"The controller has dropped keys of an outdated saved state, because no member has them any more.",
		"Start controllers only with their newest state.",
	},
	{
		"keys.moved",
		"The controller has moved a key to this chain.",
		"",
	},
	{
		"keys.not-moved",
		"A key stays in its chain, because the controller could not move it, or because a key that it was to remove " +
			"as unused is in use.",
		"If an operator asked for the move, remove the cause in the message, and move the key again.",
	},
	{
		"keys.not-realigned",
		"A switch has refused the entries that give keys the realms of a new topology.",
		"Remove the cause in the message. The controller writes the entries again when the switch reconnects.",
	},
	{
		"keys.not-tidied",
		"The controller could not make or drop entries of a switch's key index that differ from its directory.",
		"If the switch stays connected, remove the cause in the message. The controller tries again when the " +
			"switch reconnects.",
	},
	{
		"keys.removed",
		"The controller has removed keys from the chain. After a move or the removal of an unused key, it reports " +
			"the old slot as `moved:0x...`.",
		"",
	},
	{
		"keys.tidied",
		"The controller has made or dropped entries of a switch's key index, so that they agree with its directory.",
		"",
	},
	{
		"keys.unfinished",
		"An earlier controller did not finish an operation on keys, and this one puts a moving key back, or takes " +
			"out keys that were being added or removed.",
		"Repeat the addition or the move, if it is still wanted.",
	},
	{
		"keys.unused",
		"The controller has removed a key that was deleted and that nobody has used since.",
		"",
	},
	{
		"lease.refused",
		"A switch's answer to a lease shows that it was restarted or emptied, or that another program changes it; " +
			"the controller reads it again.",
		"If nobody restarted the switch, find the other program that controls it.",
	},
	{
		"network.enforces-access",
		"All switches run this version's program, so the network now enforces access.",
		"",
	},
	{
		"placement.bypassed",
		"A placed key's slot has an older value than etcd, because a program writes the key past the gateways; " +
			"the controller removes the key from the network.",
		"Stop that program, or let it write through a gateway.",
	},
	{
		"placement.failed",
		"The controller could not place or remove a key of etcd, and tries again.",
		"If it repeats, remove the cause in the message.",
	},
	{
		"placement.forged",
		"A placed key's slot has content that no gateway has written; the controller removes the key from the network.",
		"Find the program that writes slots without the right to.",
	},
	{
		"placement.placed",
		"The controller has placed a key of etcd in the network.",
		"",
	},
	{
		"placement.removed",
		"The controller has removed a key of etcd from the network.",
		"",
	},
	{
		"placement.resumed",
		"The controller finishes the moves of keys that an earlier controller had recorded.",
		"",
	},
	{
		"placement.rule",
		"The controller has recorded an operator's rule for a key or a prefix, or has removed one.",
		"",
	},
	{
		"placement.slot-lost",
		"A placed key's slot is empty or gone, belongs to another placement, or is not sealed; the controller " +
			"removes the key from the network.",
		"",
	},
	{
		"placement.slot-unreachable",
		"A gateway cannot write a placed key, because the slot does not answer; if nobody can write it, the " +
			"controller removes the key from the network.",
		"If it repeats, check the gateway's connection to the chain.",
	},
	{
		"placement.source-down",
		"Prometheus does not answer the controller, which moves no key because of heat meanwhile.",
		"Check Prometheus, and the URL in `--prometheus`.",
	},
	{
		"placement.source-up",
		"Prometheus answers the controller again.",
		"",
	},
	{
		"placement.tidied",
		"The controller has removed a key that the switches had and no gateway knew of, or the entry of a placed " +
			"key that no switch has.",
		"",
	},
	{
		"placement.value-too-large",
		"A gateway could not put a placed key's value into its slot; the controller removes the key from the network.",
		"",
	},
	{
		"sessions.resting",
		"The controller does not know which sessions an earlier controller has leased, so it leases none for twice " +
			"`sessions.ttlSeconds`.",
		"",
	},
	{
		"state.not-saved",
		"The controller could not save its state in its file or in etcd.",
		"If `controller.deposed` comes with it, nothing. Otherwise make room on the disk, or bring etcd back, before you " +
			"restart the controller.",
	},
	{
		"switch.avoided",
		"The controller leads routes around a switch that is out of reach or is being emptied, if there is another way.",
		"",
	},
	{
		"switch.backup",
		"The controller is only a backup at the switch, because another one has taken over there, so it cannot change " +
			"the switch.",
		"With several controllers on one etcd, nothing. Otherwise stop one of the two controllers.",
	},
	{
		"switch.connected",
		"The controller is connected to the switch, as its primary.",
		"",
	},
	{
		"switch.disconnected",
		"The controller has lost its connection to the switch, and tries to connect again.",
		"If the switch does not come back, check its process and the network, or replace it.",
	},
	{
		"switch.joined",
		"The controller has added a switch, because the topology file has a new one.",
		"Run `netcraqctl chain recover`, if a chain is to have the switch.",
	},
	{
		"switch.leaving",
		"The topology file no longer has a switch that chains still need; the chains first continue without it.",
		"Stop the switch only after `switch.left`. If it is a chain's last member, give the chain another one.",
	},
	{
		"switch.left",
		"The controller has forgotten a switch that the topology file no longer has.",
		"",
	},
	{
		"switch.not-forgotten",
		"The controller could not forget a switch that has left the topology file, and tries again.",
		"Remove the cause in the message.",
	},
	{
		"switch.not-rerouted",
		"A switch has refused changes of its routes or multicast groups.",
		"Remove the cause in the message. The controller writes them again with the next change of routes, or when the " +
			"switch reconnects.",
	},
	{
		"switch.not-set-up",
		"The controller could not set up a switch: its program, or the entries that follow from the topology. It " +
			"tries again.",
		"Remove the cause in the message.",
	},
	{
		"switch.not-watching",
		"A switch has refused its part of watches, so watchers learn of changes later.",
		"Remove the cause in the message. The switch serves requests as before.",
	},
	{
		"switch.program-loaded",
		"The controller has loaded the program into a switch, which is now empty.",
		"",
	},
	{
		"switch.program-not-replaced",
		"The controller could not replace the program of another version in a switch, and tries again.",
		"If it repeats, remove the cause in the message.",
	},
	{
		"switch.program-replaced",
		"A switch that ran the program of another version runs this controller's, and is back in its chains.",
		"",
	},
	{
		"switch.program-waits",
		"The controller cannot replace the program of another version yet, because chains are not ready, or because " +
			"a switch is the only member of a chain.",
		"If the switch is an only member, give the chain another one, or restart the switch, which loses the values.",
	},
	{
		"switch.refused",
		"A switch could not take its part of a chain's configuration, and the controller tries again.",
		"If it lasts, remove the cause in the message.",
	},
	{
		"switch.replaced",
		"The controller connects to a switch at another address, device id or server name, because the topology " +
			"file has changed.",
		"",
	},
	{
		"switch.rerouted",
		"Routes go by a switch again that the controller had avoided.",
		"",
	},
	{
		"switch.stream-error",
		"A switch has reported an error about a packet or message of the controller; at most one a second becomes " +
			"an event.",
		"If it repeats after the switch is set up, read the switch's log.",
	},
	{
		"switch.unreachable",
		"The controller cannot connect to the switch, and tries again.",
		"Check the switch's process, the network and the certificates; the message says what failed.",
	},
	{
		"switch.version-untested",
		"A switch has connected whose version is more than one minor version apart from the controller's or " +
			"another switch's. Such versions are not tested together.",
		"Upgrade what the message names. `netcraqctl chain show` prints the version of each member.",
	},
}
