package sim

// removed is the rules that are not kept, of those that are not the P4 program's.
type removed struct {
	wait             bool
	freeze           bool
	lost             bool
	ackFromTailAlone bool // (what the program needs to break it: groups by which a replica can acknowledge)
	storeCompare     bool
	leads            bool
	before           bool
	arbitration      bool
	connections      bool
	moveLeaves       bool
	drainless        bool
	sameID           bool
	lookupOnce       bool
	persist          bool
	redrive          bool
	redriveSession   bool
	redriveEpoch     bool
	redriveStuck     bool
	redriveAlone     bool
	redriveAll       bool
	redriveThawed    bool
	copySessions     bool
	copyNewest       bool
	comparison       bool
	emptyHasNoRole   bool
	recordStays      bool
	toldVersions     bool
	open             bool
	hidden           bool
	blindWrites      bool
	oneCopy          bool
	formerKeys       bool
	formerMembers    bool
	writesAnew       bool
	suspendedClock   bool
	staleHeld        bool
	endsEarly        bool
	cleanCells       bool
	keysGoOn         bool
	dropsMoving      bool
	tidyBusy         bool
	watchesStay      bool
	leftOut          bool
	rejoin           bool
	late             bool
	unjudged         bool
	unequal          bool
	watched          bool
	heardForEver     bool
	shortLease       bool
	fillsFromBefore  bool
	fillingLease     bool
	fillingUnmarked  bool
	fillingUnknown   bool
	outcome          bool
	floor            bool
	unseen           bool
	mistrust         bool
	leaseTag         bool
	margin           bool
	peers            bool
}

func init() {
	Mutants = append(Mutants,
		&Mutant{ID: "RECORD_STAYS", Rule: "the record of a session that is leased anew begins anew", remove: func(r *removed) { r.recordStays = true }, shows: NotWritable},
		&Mutant{ID: "NO_WAIT", Rule: "a configuration is installed when the members that it leaves out are fenced, or their lease is over", remove: func(r *removed) { r.wait = true }},
		&Mutant{ID: "MARGIN_OF_CRYSTALS", Rule: "a lease is waited for by a margin that covers clocks which are slewed, not only crystals that differ", own: true, scenario: "lease_of_a_slow_clock", remove: func(r *removed) { r.margin = true }},
		&Mutant{ID: "SHORT_IS_WHOLE", Rule: "the lease that is waited for is as long as the one that was given", own: true, remove: func(r *removed) { r.shortLease = true }},
		&Mutant{ID: "NO_STORE_COMPARE", Rule: "a controller records a configuration only if it has seen the newest one", remove: func(r *removed) { r.storeCompare = true }},
		&Mutant{ID: "LEASES_WITHOUT_LEADING", Rule: "a controller renews leases only if it has heard lately that it leads", own: true, remove: func(r *removed) { r.leads = true }},
		&Mutant{ID: "NO_LEASES_BEFORE", Rule: "a controller that takes over waits out the leases that the one before may have given since", own: true, remove: func(r *removed) { r.before = true }},
		&Mutant{ID: "NO_ARBITRATION", Rule: "a switch takes no configuration from a controller that another has replaced", remove: func(r *removed) { r.arbitration = true }},
		&Mutant{ID: "NO_CONNECTION_ORDER", Rule: "a switch takes nothing that comes late by a connection that its controller has replaced", own: true, remove: func(r *removed) { r.connections = true }},
		&Mutant{ID: "NO_PERSIST", Rule: "a configuration is durable before any switch has it", remove: func(r *removed) { r.persist = true }},
		&Mutant{ID: "NO_REDRIVE", Rule: "what is dirty is re-propagated", remove: func(r *removed) { r.redrive = true }, shows: NotSettled},
		&Mutant{ID: "REDRIVE_WITHOUT_SESSION", Rule: "a re-driven write carries its session and request", remove: func(r *removed) { r.redriveSession = true }},
		&Mutant{ID: "REDRIVE_LATER_EPOCH", Rule: "a re-driven write carries the epoch under which it was fetched", remove: func(r *removed) { r.redriveEpoch = true },
			implied: "a re-driven write goes in at the head of the configuration it was asked for under, which is the cut-off head itself, and drops what has another epoch"},
		&Mutant{ID: "NO_PERIODIC", Rule: "what is dirty is re-propagated at intervals, not only after a change of the chain", remove: func(r *removed) { r.redriveStuck = true }, shows: NotSettled},
		&Mutant{ID: "REDRIVE_HEAD_ONLY", Rule: "what is dirty is re-propagated from every member, not only from the head", remove: func(r *removed) { r.redriveAll = true }, shows: NotSettled},
		&Mutant{ID: "REDRIVE_NOT_ALONE", Rule: "what is dirty is re-propagated in a chain of one too", remove: func(r *removed) { r.redriveAlone = true }, shows: NotSettled},
		&Mutant{ID: "COPY_WITHOUT_SESSIONS", Rule: "recovery copies the sessions", remove: func(r *removed) { r.copySessions = true }},
		&Mutant{ID: "COPY_COMMITTED", Rule: "recovery copies the donor's newest version, not its committed one", scenario: "recover_from_a_dirty_tail", remove: func(r *removed) { r.copyNewest = true }},
		&Mutant{ID: "NO_COMPARISON", Rule: "the roles flip only when donor and joiner were found equal", remove: func(r *removed) { r.comparison = true }},
		&Mutant{ID: "NO_FREEZE", Rule: "donor and joiner are compared under a freeze of writes, which lasts until the roles flip", remove: func(r *removed) { r.freeze = true }},
		&Mutant{ID: "FILLS_FROM_BEFORE", Rule: "a switch that writes pass is filled from the tail, behind it, and not from the member before it", scenario: "recover_from_the_tail", remove: func(r *removed) { r.fillsFromBefore = true }},
		&Mutant{ID: "LEASE_BEFORE_FILLED", Rule: "a switch that is being filled gets no lease", remove: func(r *removed) { r.fillingLease = true }},
		&Mutant{ID: "FILLING_UNMARKED", Rule: "a switch that is being filled says so itself, to a controller that has no record of it", own: true, scenario: "recover_record_put_back", remove: func(r *removed) { r.fillingUnmarked = true }},
		&Mutant{ID: "FILLING_UNRECORDED", Rule: "that a switch is being filled, and is no member, is on record until it is filled", scenario: "recover_taken_over", remove: func(r *removed) { r.fillingUnknown = true }},
		&Mutant{ID: "JOINS_WITH_OLD_ROLE", Rule: "a switch that comes back has no role until a configuration gives it one", remove: func(r *removed) { r.emptyHasNoRole = true }},
		&Mutant{ID: "EMPTY_GETS_OLD_ROLE", Rule: "an empty switch gets no role from a configuration that was decided before it came back", remove: func(r *removed) { r.lost = true }},
		&Mutant{ID: "KEY_RESTARTS_LOWER", Rule: "a KEY_ID that was used does not come back in another slot, where its versions begin again lower", remove: func(r *removed) { r.sameID = true }},
		&Mutant{ID: "FLOOR_FORGOTTEN", Rule: "the highest version by name of removed keys is on record", own: true, shows: NameWentBack, remove: func(r *removed) { r.floor = true }},
		&Mutant{ID: "MOVE_LEAVES_ENTRIES", Rule: "a key that is moved is placed again when no member has its old entry any more", own: true, remove: func(r *removed) { r.moveLeaves = true }},
		&Mutant{ID: "MOVE_WITHOUT_DRAINING", Rule: "what is moved is what all members agree on when nobody can write the key any more", own: true, remove: func(r *removed) { r.drainless = true }},
		&Mutant{ID: "NO_LOOKUP_AGAIN", Rule: "NOT_FOUND without a version is no answer: the key is looked up, and asked for, again", own: true, remove: func(r *removed) { r.lookupOnce = true }},
		&Mutant{ID: "REMOVED_OPEN", Rule: "a key that is removed is closed to clients' writes before its tombstone is written", own: true, shows: NoSlotAndYet, remove: func(r *removed) { r.open = true }},
		&Mutant{ID: "ADDED_OPEN", Rule: "a key that is added is hidden from clients until its first write is committed at all members", remove: func(r *removed) { r.hidden = true }},
		&Mutant{ID: "BLIND_WRITES", Rule: "the controller writes keys by CAS on the version that their slot has", remove: func(r *removed) { r.blindWrites = true }},
		&Mutant{ID: "FORMER_KEYS", Rule: "a switch that becomes a member again has no entries of keys that were removed meanwhile", own: true, scenario: "former_member_without_recovery",
			remove: func(r *removed) { r.formerKeys = true }},
		&Mutant{ID: "FORMER_MEMBERS", Rule: "so has a switch that was cut off meanwhile, and has its part of an earlier configuration", own: true, scenario: "former_member_cut_off", shows: NoSlotAndYet,
			remove: func(r *removed) { r.formerMembers = true }},
		&Mutant{ID: "ONE_COPY", Rule: "the refusal of a write speaks for one copy of it: what became of the others is not known", own: true, shows: NotSoSure, remove: func(r *removed) { r.oneCopy = true }},
		&Mutant{ID: "WRITES_ANEW", Rule: "a WRITE whose session is not taken does not begin again with another", own: true, scenario: "session_taken",
			remove: func(r *removed) { r.writesAnew = true }},
		&Mutant{ID: "SUSPENDED_CLOCK", Rule: "a switch's clock goes on while its machine is suspended", own: true, remove: func(r *removed) { r.suspendedClock = true }},
		&Mutant{ID: "STALE_HELD", Rule: "what a switch was seen to hold counts for the recovery in which it was seen", own: true, scenario: "recover_twice", remove: func(r *removed) { r.staleHeld = true }},
		&Mutant{ID: "ENDS_EARLY", Rule: "a round of copying ends when all that is in it is done", own: true, remove: func(r *removed) { r.endsEarly = true }, shows: NotSettled},
		&Mutant{ID: "CLEAN_CELLS", Rule: "who reads registers sees what is dirty there", own: true, remove: func(r *removed) { r.cleanCells = true }, shows: NotSettled},
		&Mutant{ID: "KEYS_GO_ON", Rule: "a step of an operation on keys ends when the chain is changed", own: true, remove: func(r *removed) { r.keysGoOn = true }},
		&Mutant{ID: "DROPS_WHAT_MOVES", Rule: "a switch that is filled gets the keys that are being moved, too", own: true, scenario: "recover_beside_a_move", shows: NotSettled, remove: func(r *removed) {
			r.dropsMoving = true
		}},
		&Mutant{ID: "TIDY_TOUCHES_BUSY", Rule: "entries of keys that are being changed are left alone when switches are tidied, and keys that are tidied are not changed", own: true, remove: func(r *removed) { r.tidyBusy = true }},
		&Mutant{ID: "WATCHES_STAY", Rule: "watches are written anew for each configuration", own: true, remove: func(r *removed) { r.watchesStay = true }, shows: NotTold},
		&Mutant{ID: "LEFT_OUT_COMES_BACK", Rule: "whom an operator has left out comes back only by an operator's word", own: true, remove: func(r *removed) { r.leftOut = true }, shows: BroughtBack},
		&Mutant{ID: "NOBODY_COMES_BACK", Rule: "a member that was lost comes back when it has been steady for a while", own: true, remove: func(r *removed) { r.rejoin = true }, shows: NotSettled},
		&Mutant{ID: "JUDGES_UNHEARD", Rule: "a controller that was held up judges members anew, by what it hears from then on", own: true, scenario: "controller_starved", shows: GivenUpInVain, remove: func(r *removed) { r.late = true }},
		&Mutant{ID: "OUTCOME_FORGOTTEN", Rule: "after a call of unknown outcome a controller writes nothing more but by a new connection, with a higher election id", remove: func(r *removed) { r.outcome = true }},
		&Mutant{ID: "EMPTIED_UNSEEN", Rule: "a switch that lacks what is to be changed of its part in a chain, or of its keys, gets nothing, and is read again", scenario: "emptied_before_an_installation", remove: func(r *removed) { r.unseen = true }},
		&Mutant{ID: "TRUSTS_LEASE_REPLIES", Rule: "a member whose LEASE_REPLY contradicts what it was known to have gets no role again that it had", scenario: "emptied_while_connected", remove: func(r *removed) { r.mistrust = true }},
		&Mutant{ID: "JOINER_UNJUDGED", Rule: "a switch that is to become a member is given up when it does not answer, like a member", own: true, scenario: "joiner_stands_still", shows: HeldUp, remove: func(r *removed) { r.unjudged = true }},
		&Mutant{ID: "HEARS_OTHERS_LEASES", Rule: "a controller believes the replies to its own LEASEs alone", own: true, remove: func(r *removed) { r.leaseTag = true }},
		&Mutant{ID: "GROWS_WITH_RECORDS", Rule: "when a chain has its first key its members' records of sessions are of their leases", scenario: "grown_without_keys", shows: NotWritable, tells: "outcome unknown (session not taken)",
			remove: func(r *removed) { r.unequal = true }},
		&Mutant{ID: "HIDDEN_WATCHED", Rule: "nobody watches a key that clients cannot see yet", own: true, shows: AnothersValue,
			remove: func(r *removed) { r.watched = true }},
		&Mutant{ID: "HEARD_FOR_EVER", Rule: "a new member is told of the controller's sessions", scenario: "grown_without_keys", shows: NotSettled,
			remove: func(r *removed) { r.heardForEver = true }},
		&Mutant{ID: "EVERYBODY_A_PEER", Rule: "a switch takes a chain's messages only by ports that the chain sends them by", own: true, remove: func(r *removed) { r.peers = true }},
		&Mutant{ID: "GUESS", Rule: "a CAS expects only a version that its client was told", remove: func(r *removed) { r.toldVersions = true }},
	)
}
