/* SPDX-License-Identifier: Apache-2.0
 *
 * The controllers: docs/protocol.md, "Changing a chain".
 */

inline set_members(its_config, its_members) {
    members[its_config] = its_members;
    i = 0; present[its_config] = 0;
    do
    :: i < 3 && AT(its_config, i) != NOBODY -> tail[its_config] = AT(its_config, i); present[its_config] = present[its_config] | (1 << AT(its_config, i)); i++
    :: else -> break
    od;
    i = 0
}

inline decide(its_members, its_frozen) {
    now_config++;
#ifdef QUIET
    driven = 0;
#endif
    frozen[now_config] = its_frozen;
    set_members(now_config, its_members);
#ifdef EPOCHS
    epoch[now_config] = epoch[now_config - 1] + 1;
#endif
    printf("controller: configuration %d: %d %d %d\n", now_config, AT(now_config, 0), AT(now_config, 1), AT(now_config, 2))
}

/* The chain without a node: those behind it move up. */
#define WITHOUT(m, n) \
    (((m) & 3) == (n) -> ((m) >> 2) | 48 : \
    ((((m) >> 2) & 3) == (n) -> ((m) & 3) | (((m) >> 2) & 12) | 48 : \
    ((m) & 15) | 48))
#define WITH(m, n) ((((m) >> 2) & 3) == NOBODY -> ((m) & 3) | ((n) << 2) | 48 : ((m) & 15) | ((n) << 4))

inline forget_fetched() {
    if
    :: joining != NOBODY ->
#ifdef PASSED
        looked = 0;
#endif
        fetched_version = 0; fetched_value = 0; fetched_request[0] = 0; fetched_request[1] = 0; fetched_given[0] = 0; fetched_given[1] = 0
    :: else
    fi
}
inline give_up_joining() {
#if JOINS > 0
    forget_fetched();
#endif
    joining = NOBODY
}

/* The members on record: a node that writes pass while it is filled is none. */
#ifdef PASSED
#define PASSES (joining != NOBODY && IN(now_config, joining))
#define MEMBERS_BUT(node) (PASSES && joining != (node) -> WITHOUT(members[now_config], joining) : members[now_config])
#define BEFORE_TAIL(m, n) (((m) & 3) | ((n) << 2) | (((m) & 12) << 2))
#else
#define PASSES false
#define MEMBERS_BUT(node) members[now_config]
#endif

inline remove(node) {
    removals++;
    printf("controller: gives node %d up\n", node);
    tmp = MEMBERS_BUT(node);
    give_up_joining();
    tmp = WITHOUT(tmp, node);
    decide(tmp, 0);
#ifdef FAIL_STOP
    config[node] = 0; empty_since[node] = now_config; /* it has stopped, or it would not be given up */
#endif
    n = 0
}
#define REMOVABLE(node) (removals < REMOVALS && now_config < CONFIGS && IN(now_config, node) && AT(now_config, 1) != NOBODY)

inline install(node, its_config) {
    config[node] = its_config;
    printf("node %d: has configuration %d\n", node, its_config);
    forget_packets_to(node);
    i = 0                                             /* (a d_step may not end in a loop) */
}
/* Fenced, or its lease is over. (A fenced member is one that happens to do nothing more under its old configuration.) */
#if defined(NO_WAIT) || defined(FAIL_STOP)
#define OUT(k, node) true
#else
#define OUT(k, node) (IN(k, node) || !lease[node])
#endif
#define LEFT_OUT(k) (OUT(k, 0) && OUT(k, 1) && OUT(k, 2))
/* Has everything behind this node acknowledged configuration k? (Some may have gone on to a later one.) */
#define HAS(k, node) ((node) == NOBODY || config[node] >= (k))
#define BEHIND(k, node) (TAIL(k) == (node) || (HAS(k, TAIL(k)) && (AT(k, 1) == (node) || HAS(k, AT(k, 1)))))
#ifdef NO_ORDER
#define TURN(k, node) true
#else
#define TURN(k, node) BEHIND(k, node)
#endif
#ifdef NO_ARBITRATION
#define OLDER(k, node) (config[node] != (k))
#else
#define OLDER(k, node) (config[node] < (k) && empty_since[node] < (k))
#endif
#define INSTALLABLE(k, node) ((k) >= 1 && (k) <= now_config && IN(k, node) && OLDER(k, node) && LEFT_OUT(k) && TURN(k, node))

#if defined(OUTCOME_FORGOTTEN) || defined(LATE_AFTER_WRITES)
bit arrived;
#ifdef LATE_AFTER_WRITES
#define HARMLESS(node) (HEAD(1) == (node) && CLEAN(node) && EPOCH(latest[node]) > 1)
#else
#define HARMLESS(node) true
#endif
#define ARRIVES_LATE(node) (!arrived && config[node] > 1 && IN(1, node) && HARMLESS(node))
#endif

inline redrive(node) {
    n = node;
#ifdef QUIET
    driven = driven | (1 << n);
#endif
    printf("controller: re-propagates version %d.%d of node %d\n", EPOCH(latest[n]), SEQ(latest[n]), n);
#ifdef REDRIVE_WITHOUT_SESSION
    ok = 1;
#else
    ok = newest_writer[n] == 0;
#endif
#ifdef REDRIVE_LATER_EPOCH
    tmp = now_config;
#else
    tmp = config[n];                                  /* the epoch of the FETCH_REPLY */
#endif
    v = latest[n]; w = newest_value[n]; d = HEAD(tmp);
    send(tmp, v, w, ok, d)
}

#ifdef QUIET
#define UNDRIVEN(node) ((driven & (1 << (node))) == 0)
#else
#define UNDRIVEN(node) true
#endif
#ifdef REDRIVE_HEAD_ONLY
#define DRIVES(node) IS_HEAD(node)
#else
#define DRIVES(node) true
#endif
#ifdef REDRIVE_NOT_ALONE
#define ENOUGH (AT(now_config, 1) != NOBODY)
#else
#define ENOUGH true
#endif
#ifdef QUIET
/* Where it has to help, it is done once in a configuration, when all have it; and once more when nothing is lost any more (unless that is the rule removed). */
#ifdef NO_PERIODIC
#define TIME_TO_REDRIVE (now_config > 1)
#else
#define TIME_TO_REDRIVE (now_config > 1 || calm)
#endif
#define REDRIVABLE(node) (IN(now_config, node) && !CLEAN(node) && INSTALLED && !frozen[now_config] && DRIVES(node) && ENOUGH && UNDRIVEN(node) && TIME_TO_REDRIVE)
#else
/* Where it must not harm, whenever it likes. */
#define REDRIVABLE(node) (config[node] >= REDRIVE_FROM && MEMBER(node) && !CLEAN(node) && DRIVES(node))
#endif

inline clear_registers() {
    latest[n] = 0; committed[n] = 0; newest_value[n] = 0; newest_writer[n] = 0; value[n] = 0;
    session_request[n * SESSIONS] = 0; session_request[n * SESSIONS + 1] = 0; session_version[n * SESSIONS] = 0; session_version[n * SESSIONS + 1] = 0
}

#ifdef EMPTIED
/* A member loses its tables and registers, and stays connected. (When all members have, what they had is lost.) Its answer to the next LEASE names no configuration: it gets none any
 * more, neither the one that it had nor a later one, until it is brought in as a switch that comes back empty. */
bit emptied;
#define EMPTIABLE(node) (!emptied && IN(now_config, node) && config[node] != 0 && AT(now_config, 1) != NOBODY)
#define NEVER 15
inline lose_all(node) {
    n = node;
    emptied = 1;
    clear_registers();
    config[n] = 0;
#if defined(EMPTIED_UNSEEN)
    empty_since[n] = now_config;
#elif !defined(TRUSTS_LEASE_REPLIES)
    empty_since[n] = NEVER;
#endif
    printf("node %d: loses all that it has\n", n)
}
#endif

#define JOINABLE(node) (joins < JOINS && NO_KEYS && joining == NOBODY && !IN(now_config, node) && !lease[node] && INSTALLED && !frozen[now_config] && \
                        AT(now_config, 2) == NOBODY && now_config + 2 <= CONFIGS)
inline invite(node) {
    n = node;
    joins++; joining = n;
    clear_registers();
#ifndef JOINS_WITH_OLD_ROLE
    config[n] = 0;
#ifndef EMPTY_GETS_OLD_ROLE
    empty_since[n] = now_config;
#endif
#endif
    printf("controller: node %d comes back, empty\n", n)
}
#ifdef GROWS_UNEQUAL
inline grow(node) {
    n = node;
    joins++; lease[n] = 1; config[n] = 0;
    printf("controller: node %d becomes a member, with what it has\n", n);
    tmp = members[now_config];
    tmp = WITH(tmp, n);
    decide(tmp, 0)
}
#endif
#if defined(POOL) && !defined(HEARD_FOR_EVER)
#define ANNOUNCES
inline announce(node) {
    session_request[(node) * SESSIONS] = 0;
    printf("node %d: its record of session 0 begins anew\n", node)
}
#endif
/* Slots by SYNC (write if newer), then sessions. What was fetched last is put in once or several times, at any later time before the comparison. */
#ifdef FILLS_FROM_BEFORE
#define DONOR (PASSES -> HEAD(now_config) : TAIL(now_config))
#else
#define DONOR TAIL(now_config)
#endif
#ifdef COPY_COMMITTED
#define COPIED_VERSION(d) committed[d]
#define COPIED(d) value[d]
#else
#define COPIED_VERSION(d) latest[d]
#define COPIED(d) NEWEST(d)
#endif
inline fetch() {
    d = DONOR;
#ifdef PASSED
    looked = 1;
#endif
    fetched_version = COPIED_VERSION(d); fetched_value = COPIED(d);
    fetched_request[0] = session_request[d * SESSIONS]; fetched_request[1] = session_request[d * SESSIONS + 1];
    fetched_given[0] = session_version[d * SESSIONS]; fetched_given[1] = session_version[d * SESSIONS + 1];
    printf("controller: fetches from node %d: version %d.%d\n", d, EPOCH(fetched_version), SEQ(fetched_version))
}
inline sync(node) {
    n = node;
    printf("controller: SYNCs node %d with version %d.%d\n", n, EPOCH(fetched_version), SEQ(fetched_version));
    v = fetched_version; x = fetched_value;
#ifdef SYNC_ANYWAY
    committed[n] = v; latest[n] = v; value[n] = x; tidy(n);
#else
    if :: PLACED(n) -> commit_news(n, v, x, 0) :: else fi;
#endif
#ifndef COPY_WITHOUT_SESSIONS
    c = 0;
    do
    :: c < 2 ->
        if
        :: TAKES(session_request[n * SESSIONS + c], fetched_request[c]) ->
            session_request[n * SESSIONS + c] = fetched_request[c];
            session_version[n * SESSIONS + c] = fetched_given[c]
        :: else
        fi;
        c++
    :: else -> break
    od;
#endif
    c = 0
}
#define SAME_SESSION(c) (session_request[joining * SESSIONS + c] == session_request[DONOR * SESSIONS + c] && session_version[joining * SESSIONS + c] == session_version[DONOR * SESSIONS + c])
#ifdef COPY_WITHOUT_SESSIONS
#define SAME_SESSIONS true
#else
#define SAME_SESSIONS (SAME_SESSION(0) && SAME_SESSION(1))
#endif
#if defined(NO_COMPARISON)
#define SAME (fetched_version != 0 && committed[joining] >= fetched_version)
#elif defined(JOINS_WITH_OLD_ROLE)
#define SAME (committed[joining] >= latest[DONOR])
#else
#define SAME ((!PLACED(DONOR) || committed[joining] == COPIED_VERSION(DONOR)) && SAME_SESSIONS)
#endif
/* A SYNC that is late (of a controller that has been replaced, say) can arrive when the joiner has long been a member. */
#define WOULD_SYNC_SESSION(node, c) (TAKES(session_request[(node) * SESSIONS + c], fetched_request[c]) && \
    (fetched_request[c] != session_request[(node) * SESSIONS + c] || fetched_given[c] != session_version[(node) * SESSIONS + c]))
#ifdef SYNC_ANYWAY
#define WOULD_SYNC(node) (fetched_version != 0 && fetched_version != latest[node])
#else
#define WOULD_SYNC(node) (fetched_version != 0 && (fetched_version > committed[node] || WOULD_SYNC_SESSION(node, 0) || WOULD_SYNC_SESSION(node, 1)))
#endif
#define FETCHED_SESSION(c) (fetched_request[c] == session_request[DONOR * SESSIONS + c] && fetched_given[c] == session_version[DONOR * SESSIONS + c])
#define FETCHED_ANY (fetched_version != 0 || fetched_request[0] != 0 || fetched_request[1] != 0)
#define FETCHED (fetched_version == COPIED_VERSION(DONOR) && FETCHED_SESSION(0) && FETCHED_SESSION(1))
#ifdef PASSED
/* Writes pass the joiner, and it has what the tail had when it was fetched, or something newer. */
#define RECORDED(c) (session_request[joining * SESSIONS + c] == fetched_request[c] || NEWER(fetched_request[c], session_request[joining * SESSIONS + c]))
#ifdef COPY_WITHOUT_SESSIONS
#define RECORDED_ALL true
#else
#define RECORDED_ALL (RECORDED(0) && RECORDED(1))
#endif
#ifdef NO_COMPARISON
#define CAUGHT_UP PASSES
#else
#define CAUGHT_UP (PASSES && looked && latest[joining] >= fetched_version && RECORDED_ALL)
#endif
#define ALONE (AT(now_config, 1) == NOBODY)
#define TIME_TO_FETCH (PASSES -> INSTALLED && (!looked || !FETCHED) : !FETCHED)
#define LACKS (PASSES -> !CAUGHT_UP : !SAME)
#else
#define ALONE true
#define TIME_TO_FETCH (!FETCHED)
#define LACKS (!SAME)
#endif
#ifdef NO_FREEZE
#define STANDS_STILL true
#else
#define STANDS_STILL frozen[now_config]
#endif

#ifdef NO_STORE_COMPARE
#define REMOVABLE2(node) (removals < REMOVALS && IN(1, node))
inline decide_too(node) {
    removals++;
    tmp = members[1];
    tmp = WITHOUT(tmp, node);
    decide(tmp, 0);
    epoch[now_config] = 2
}
#endif

#if MOVES > 0
/* The key is taken out, and put into another slot. What it holds then is taken for the tombstone of a DELETE: all members have it. Entries go head first and come tail first. */
inline take_out(node) {
    if
    :: HEAD(now_config) == (node) -> moving = 1; moved_version = latest[node]; moved_value = value[node]
    :: else
    fi;
    unplaced = unplaced | (1 << (node));
    if :: unplaced == present[now_config] -> moving = 2 :: else fi;
    printf("node %d: the key is taken out at version %d.%d\n", node, EPOCH(latest[node]), SEQ(latest[node]))
}
inline put_in(node) {
    unplaced = unplaced & ~(1 << (node));
#ifdef KEY_RESTARTS_LOWER
    latest[node] = 0; committed[node] = 0;
#else
    latest[node] = moved_version; committed[node] = moved_version;
#endif
    value[node] = moved_value; newest_value[node] = 0; newest_writer[node] = 0;
    if :: unplaced == 0 -> moving = 3; moved_version = 0; moved_value = 0 :: else fi;
    printf("node %d: the key is put into another slot, at version %d.%d\n", node, EPOCH(latest[node]), SEQ(latest[node]))
}
#define LIKE_HEAD(node) (!IN(now_config, node) || (CLEAN(node) && committed[node] == committed[HEAD(now_config)]))
#define REMOVABLE_KEY(node) (IN(now_config, node) && PLACED(node) && INSTALLED && (HEAD(now_config) == (node) -> \
    (moving == 0 && latest[node] != 0 && LIKE_HEAD(0) && LIKE_HEAD(1) && LIKE_HEAD(2)) : \
    (moving == 1 && !PLACED(HEAD(now_config)) && (AT(now_config, 1) == (node) || !PLACED(AT(now_config, 1))))))
#define ADDABLE_KEY(node) (IN(now_config, node) && !PLACED(node) && INSTALLED && moving == 2 && (TAIL(now_config) == (node) || \
    (PLACED(TAIL(now_config)) && (AT(now_config, 1) == (node) || PLACED(AT(now_config, 1))))))
#endif

proctype Controller() {
    do
#ifdef QUIET
    :: d_step {
        !calm && removals == REMOVALS && joins == JOINS && takeovers == TAKEOVERS && joining == NOBODY && INSTALLED && !frozen[now_config] ->
        printf("controller: (nothing is lost any more)\n");
        calm = 1;
#ifndef NO_PERIODIC
        driven = 0;
#endif
        clear()
    }
#endif
    :: d_step { RUNNING && REMOVABLE(0) -> remove(0); clear() }
    :: d_step { RUNNING && REMOVABLE(1) -> remove(1); clear() }
    :: d_step { RUNNING && REMOVABLE(2) -> remove(2); clear() }
    /* Nobody renews it any more, and it runs out. */
    :: d_step { RUNNING && lease[0] && !IN(now_config, 0) -> printf("node 0: its lease is over\n"); lease[0] = 0; clear() }
    :: d_step { RUNNING && lease[1] && !IN(now_config, 1) -> printf("node 1: its lease is over\n"); lease[1] = 0; clear() }
    :: d_step { RUNNING && lease[2] && !IN(now_config, 2) -> printf("node 2: its lease is over\n"); lease[2] = 0; clear() }
#ifdef LATE_LEASE
    :: d_step { RUNNING && !lease[0] && MEMBER(0) -> printf("node 0: a late LEASE arrives\n"); lease[0] = 1; clear() }
    :: d_step { RUNNING && !lease[1] && MEMBER(1) -> printf("node 1: a late LEASE arrives\n"); lease[1] = 1; clear() }
    :: d_step { RUNNING && !lease[2] && MEMBER(2) -> printf("node 2: a late LEASE arrives\n"); lease[2] = 1; clear() }
#endif
    :: d_step { RUNNING && INSTALLABLE(now_config, 0) -> install(0, now_config); clear() }
    :: d_step { RUNNING && INSTALLABLE(now_config, 1) -> install(1, now_config); clear() }
    :: d_step { RUNNING && INSTALLABLE(now_config, 2) -> install(2, now_config); clear() }
#if REMOVALS + TAKEOVERS > 1 || JOINS > 0
    /* On its way since before the newest was decided, or by a controller that does not know of that yet. */
    :: d_step { RUNNING && INSTALLABLE(now_config - 1, 0) -> tmp = now_config - 1; install(0, tmp); clear() }
    :: d_step { RUNNING && INSTALLABLE(now_config - 1, 1) -> tmp = now_config - 1; install(1, tmp); clear() }
    :: d_step { RUNNING && INSTALLABLE(now_config - 1, 2) -> tmp = now_config - 1; install(2, tmp); clear() }
#endif
#if defined(OUTCOME_FORGOTTEN) || defined(LATE_AFTER_WRITES)
    /* A Write of the first configuration had no answer in time. The switch was read again, and went on to others. Now the Write arrives. */
    :: d_step { RUNNING && ARRIVES_LATE(0) -> arrived = 1; printf("node 0: a late Write arrives\n"); install(0, 1); clear() }
    :: d_step { RUNNING && ARRIVES_LATE(1) -> arrived = 1; printf("node 1: a late Write arrives\n"); install(1, 1); clear() }
    :: d_step { RUNNING && ARRIVES_LATE(2) -> arrived = 1; printf("node 2: a late Write arrives\n"); install(2, 1); clear() }
#endif
#ifdef EMPTIED
    :: d_step { RUNNING && EMPTIABLE(0) -> lose_all(0); clear() }
    :: d_step { RUNNING && EMPTIABLE(1) -> lose_all(1); clear() }
    :: d_step { RUNNING && EMPTIABLE(2) -> lose_all(2); clear() }
#endif
#if TAKEOVERS > 0
    /* It knows what is in the store, and wants it under an epoch of its own. */
    :: d_step {
        RUNNING && takeovers < TAKEOVERS && now_config < CONFIGS ->
        takeovers++;
        tmp = MEMBERS_BUT(NOBODY);
#ifdef FILLING_UNRECORDED
        if :: PASSES -> lease[joining] = 1; tmp = members[now_config] :: else fi;
#endif
        give_up_joining();
        printf("controller: another takes over\n");
        decide(tmp, 0);
        clear()
    }
#endif
#ifndef NO_REDRIVE
    :: d_step { RUNNING && REDRIVABLE(0) -> redrive(0); clear() }
    :: d_step { RUNNING && REDRIVABLE(1) -> redrive(1); clear() }
    :: d_step { RUNNING && REDRIVABLE(2) -> redrive(2); clear() }
#endif
#if MOVES > 0
    :: d_step { RUNNING && REMOVABLE_KEY(0) -> take_out(0); clear() }
    :: d_step { RUNNING && REMOVABLE_KEY(1) -> take_out(1); clear() }
    :: d_step { RUNNING && REMOVABLE_KEY(2) -> take_out(2); clear() }
    :: d_step { RUNNING && ADDABLE_KEY(0) -> put_in(0); clear() }
    :: d_step { RUNNING && ADDABLE_KEY(1) -> put_in(1); clear() }
    :: d_step { RUNNING && ADDABLE_KEY(2) -> put_in(2); clear() }
#endif
#if FIRST > 0
    :: d_step { RUNNING && INSERTABLE(0) -> insert(0); clear() }
    :: d_step { RUNNING && INSERTABLE(1) -> insert(1); clear() }
    :: d_step { RUNNING && INSERTABLE(2) -> insert(2); clear() }
    :: d_step { RUNNING && ATTEMPTABLE -> attempt(); clear() }
    :: d_step { RUNNING && WRITTEN -> printf("controller: all members have the first write\n"); opening = 1; clear() }
    :: d_step { RUNNING && OPENABLE(0) -> printf("node 0: opens the key\n"); unseen = unseen ^ 1; clear() }
    :: d_step { RUNNING && OPENABLE(1) -> printf("node 1: opens the key\n"); unseen = unseen ^ 2; clear() }
    :: d_step { RUNNING && OPENABLE(2) -> printf("node 2: opens the key\n"); unseen = unseen ^ 4; clear() }
#endif
#ifdef DELETES
    :: d_step { RUNNING && CLOSABLE(0) -> printf("node 0: closes the key\n"); closed = closed | 1; clear() }
    :: d_step { RUNNING && CLOSABLE(1) -> printf("node 1: closes the key\n"); closed = closed | 2; clear() }
    :: d_step { RUNNING && CLOSABLE(2) -> printf("node 2: closes the key\n"); closed = closed | 4; clear() }
    :: d_step { RUNNING && DELETABLE -> delete(); clear() }
    :: d_step { RUNNING && !reopening && closed != 0 -> printf("controller: another takes over, and opens the key again\n"); reopening = 1; clear() }
    :: d_step { RUNNING && REOPENABLE(0) -> printf("node 0: opens the key\n"); closed = closed ^ 1; clear() }
    :: d_step { RUNNING && REOPENABLE(1) -> printf("node 1: opens the key\n"); closed = closed ^ 2; clear() }
    :: d_step { RUNNING && REOPENABLE(2) -> printf("node 2: opens the key\n"); closed = closed ^ 4; clear() }
#endif
#if JOINS > 0
#ifdef GROWS_UNEQUAL
    :: d_step { RUNNING && JOINABLE(0) -> grow(0); clear() }
    :: d_step { RUNNING && JOINABLE(1) -> grow(1); clear() }
    :: d_step { RUNNING && JOINABLE(2) -> grow(2); clear() }
#else
    :: d_step { RUNNING && JOINABLE(0) -> invite(0); clear() }
    :: d_step { RUNNING && JOINABLE(1) -> invite(1); clear() }
    :: d_step { RUNNING && JOINABLE(2) -> invite(2); clear() }
#endif
#ifdef ANNOUNCES
    :: d_step { RUNNING && ANNOUNCEABLE(0) -> announce(0); clear() }
    :: d_step { RUNNING && ANNOUNCEABLE(1) -> announce(1); clear() }
    :: d_step { RUNNING && ANNOUNCEABLE(2) -> announce(2); clear() }
#endif
    :: d_step { RUNNING && joining != NOBODY && TIME_TO_FETCH -> fetch(); clear() }
    :: d_step { RUNNING && joining != NOBODY && FETCHED_ANY && LACKS -> sync(joining); clear() }
#ifndef QUIET
    :: d_step { RUNNING && filled_late != NOBODY && WOULD_SYNC(filled_late) -> sync(filled_late); clear() }
#endif
#ifndef NO_FREEZE
    :: d_step { RUNNING && joining != NOBODY && !frozen[now_config] && INSTALLED && ALONE -> printf("controller: freeze\n"); tmp = members[now_config]; decide(tmp, 1); clear() }
#endif
#ifdef PASSED
    :: d_step {
        RUNNING && joining != NOBODY && !PASSES && !ALONE && INSTALLED ->
        printf("controller: writes pass node %d\n", joining);
        forget_fetched();
#ifdef LEASE_BEFORE_FILLED
        lease[joining] = 1;
#endif
        tmp = members[now_config];
        tmp = BEFORE_TAIL(tmp, joining);
        decide(tmp, 0);
        clear()
    }
    :: d_step {
        RUNNING && CAUGHT_UP && INSTALLED ->
        n = joining; joining = NOBODY; lease[n] = 1; filled_late = n;
        printf("controller: node %d is filled, and a member\n", n);
        clear()
    }
#endif
    :: d_step {
        RUNNING && joining != NOBODY && STANDS_STILL && INSTALLED && !PASSES && ALONE && SAME ->
        n = joining; joining = NOBODY; lease[n] = 1; filled_late = n;
        printf("controller: node %d is equal\n", n);
        tmp = members[now_config];
        tmp = WITH(tmp, n);
        decide(tmp, 0);
        clear()
    }
#endif
#ifdef LEASED
    /* Where it begins is drawn; while a configuration is on its way a switch that it leaves out may be head, and have the record of before. */
    :: d_step { RUNNING && leasing == 0 && INSTALLED -> lease_anew(LOWER); clear() }
    :: d_step { RUNNING && leasing == 0 && INSTALLED -> lease_anew(HIGHER); clear() }
    :: d_step { RUNNING && leasing == 1 && !IS_ANEW(0) -> begin_anew(0); clear() }
    :: d_step { RUNNING && leasing == 1 && !IS_ANEW(1) -> begin_anew(1); clear() }
    :: d_step { RUNNING && leasing == 1 && !IS_ANEW(2) -> begin_anew(2); clear() }
    :: d_step { RUNNING && leasing == 1 && INSTALLED && IS_ANEW(0) && IS_ANEW(1) && IS_ANEW(2) -> printf("controller: client 1 has session 0\n"); leasing = 2; anew = 0; clear() }
#endif
#ifdef NO_STORE_COMPARE
    /* Another controller, which has not heard of configuration 2, decides for its own. */
    :: d_step { RUNNING && now_config == 2 && REMOVABLE2(0) -> decide_too(0); clear() }
    :: d_step { RUNNING && now_config == 2 && REMOVABLE2(1) -> decide_too(1); clear() }
    :: d_step { RUNNING && now_config == 2 && REMOVABLE2(2) -> decide_too(2); clear() }
#endif
#ifdef NO_PERSIST
    /* It is restarted, and finds the configuration before. */
    :: d_step {
        RUNNING && now_config == 2 && removals < REMOVALS ->
        printf("controller: restarted, knows nothing of configuration %d\n", now_config);
        now_config++; tmp = members[1]; set_members(now_config, tmp); frozen[now_config] = 0; epoch[now_config] = 1;
        removals++;
        lease[0] = 1; lease[1] = 1; lease[2] = 1;
        config[0] = (config[0] == 1 -> 3 : config[0]); config[1] = (config[1] == 1 -> 3 : config[1]); config[2] = (config[2] == 1 -> 3 : config[2]);
        clear()
    }
#endif
    od
}
