/* SPDX-License-Identifier: Apache-2.0
 *
 * The network, the clients and the judge of what is at rest: who may take a step, and when.
 */

#ifdef QUIET
#define RUNNING true
#else
#define RUNNING (!DONE)
#endif

#ifdef QUIET
/* For the question of whether anything stays stuck: each packet arrives once; some are lost, until there is a calm. */
#define LOSSY (!calm)
inline take(slot, node) {
    v = 0; i = slot; key = packet[slot];
    sent_to[i] = sent_to[i] & (7 ^ (1 << (node)));
    if
    :: sent_to[i] == 0 ->
        packets--;
        do :: i < packets -> packet[i] = packet[i + 1]; sent_to[i] = sent_to[i + 1]; i++ :: else -> break od;
        packet[i] = 0; sent_to[i] = 0
    :: else
    fi
}
#define ARRIVES(slot, node) (slot < packets && (sent_to[slot] & (1 << (node))) != 0)
proctype Network(byte slot) {
    do
    :: d_step { ARRIVES(slot, 0) && ACCEPTS(0, packet[slot]) -> take(slot, 0); on_write(0, key); clear() }
    :: d_step { ARRIVES(slot, 1) && ACCEPTS(1, packet[slot]) -> take(slot, 1); on_write(1, key); clear() }
    :: d_step { ARRIVES(slot, 2) && ACCEPTS(2, packet[slot]) -> take(slot, 2); on_write(2, key); clear() }
    :: d_step { ARRIVES(slot, 0) && (LOSSY || !ACCEPTS(0, packet[slot])) -> printf("a WRITE to node 0 is lost\n"); take(slot, 0); clear() }
    :: d_step { ARRIVES(slot, 1) && (LOSSY || !ACCEPTS(1, packet[slot])) -> printf("a WRITE to node 1 is lost\n"); take(slot, 1); clear() }
    :: d_step { ARRIVES(slot, 2) && (LOSSY || !ACCEPTS(2, packet[slot])) -> printf("a WRITE to node 2 is lost\n"); take(slot, 2); clear() }
    od
}
#else
proctype Network(byte slot) {
    do
    :: d_step { RUNNING && slot < packets && (sent_to[slot] & 1) != 0 && ACCEPTS(0, packet[slot]) -> on_write(0, packet[slot]); clear() }
    :: d_step { RUNNING && slot < packets && (sent_to[slot] & 2) != 0 && ACCEPTS(1, packet[slot]) -> on_write(1, packet[slot]); clear() }
    :: d_step { RUNNING && slot < packets && (sent_to[slot] & 4) != 0 && ACCEPTS(2, packet[slot]) -> on_write(2, packet[slot]); clear() }
    od
}
#endif

#define LEARNS(node) ((MEMBER(node) || joining == (node)) && PLACED(node))

#ifdef QUIET
#define HEARS(slot, node) (slot < news && (told[slot] & (1 << (node))) == 0)
proctype News(byte slot) {
    do
    :: d_step { HEARS(slot, 0) && LEARNS(0) -> told[slot] = told[slot] | 1; on_news(0, learn[slot]); clear() }
    :: d_step { HEARS(slot, 1) && LEARNS(1) -> told[slot] = told[slot] | 2; on_news(1, learn[slot]); clear() }
    :: d_step { HEARS(slot, 2) && LEARNS(2) -> told[slot] = told[slot] | 4; on_news(2, learn[slot]); clear() }
    :: d_step { HEARS(slot, 0) && LOSSY -> printf("an ACK to node 0 is lost\n"); told[slot] = told[slot] | 1 }
    :: d_step { HEARS(slot, 1) && LOSSY -> printf("an ACK to node 1 is lost\n"); told[slot] = told[slot] | 2 }
    :: d_step { HEARS(slot, 2) && LOSSY -> printf("an ACK to node 2 is lost\n"); told[slot] = told[slot] | 4 }
    od
}

/* When nothing is on its way any more and nobody asks. */
#define SETTLED(node) (!IN(now_config, node) || CLEAN(node))
#define WAITS(c) (state[c] == WRITING && HOLDS(c))
#define ASKS_AGAIN(c) (WAITS(c) && (again & (1 << CURRENT(c))) == 0)
proctype Judge() {
    do
    :: timeout ->
        d_step {
#ifndef ANSWERS_ONLY
            settled = SETTLED(0) && SETTLED(1) && SETTLED(2);
            if :: !settled -> printf("    VIOLATION: all is at rest, and a member is dirty\n") :: else fi;
            assert(settled);
#endif
            /* Clients that live ask again, one after the other: once must do. */
            if
            :: ASKS_AGAIN(0) -> printf("client 0: asks again\n"); again = again | (1 << CURRENT(0)); asked = asked & ~(1 << CURRENT(0))
            :: !ASKS_AGAIN(0) && ASKS_AGAIN(1) -> printf("client 1: asks again\n"); again = again | (1 << CURRENT(1)); asked = asked & ~(1 << CURRENT(1))
            :: else ->
                answered = !WAITS(0) && !WAITS(1);
                if :: !answered -> printf("    VIOLATION: all is at rest, and a client waits\n") :: else fi;
                assert(answered);
                judged = 1
            fi
        }
    :: judged -> break
    od
}
#else
proctype News(byte slot) {
    do
    :: d_step { RUNNING && slot < news && LEARNS(0) -> on_news(0, learn[slot]); clear() }
    :: d_step { RUNNING && slot < news && LEARNS(1) -> on_news(1, learn[slot]); clear() }
    :: d_step { RUNNING && slot < news && LEARNS(2) -> on_news(2, learn[slot]); clear() }
    /* A reply with the same version. To a member it is as good as the ACK, since it has seen the WRITE and with it the session; not so to a joiner. */
    :: d_step { RUNNING && slot < news && joining != NOBODY && L_WRITE(learn[slot]) != 0 && !OTHER_KEY(L_WRITE(learn[slot])) -> on_news(joining, (learn[slot] & ~7)); clear() }
    od
}
#endif

/* The reply to some reader, on its way through members. Where the ACK of the same version is out, News does what it can do. */
inline repair(node) {
    n = node;
    ok = 0; i = 0;
    do :: i < news -> if :: L_VERSION(learn[i]) == SERVED_VERSION(n) && !OTHER_KEY(L_WRITE(learn[i])) -> ok = 1 :: else fi; i++ :: else -> break od;
    if
    :: !ok && SERVED_VERSION(n) != 0 ->
        v = SERVED_VERSION(n); x = SERVED(n);
        printf("node %d: a reply to another reader leaves with %d (version %d.%d)\n", n, x, EPOCH(v), SEQ(v));
        tell(v, x, 0)
    :: else
    fi
}

#if REMOVALS + JOINS + TAKEOVERS > 0 && !defined(QUIET)
#define READERS
proctype Reader() {
    do
    :: d_step { RUNNING && SERVES(0) -> repair(0); clear() }
    :: d_step { RUNNING && SERVES(1) -> repair(1); clear() }
    :: d_step { RUNNING && SERVES(2) -> repair(2); clear() }
    od
}
#endif

#define SERVES_WRITE(node, write) (kind[write] != 0 && IS_HEAD(node) && !frozen[config[node]] && ASKS(node, write) && VISIBLE(node) && !CLOSED_TO(node, write))
#ifdef QUIET
/* Once; and once more of the head that there is in the end, whose client would not find out which that is but by trying. */
#define ASKS(node, write) ((asked & (1 << write)) == 0 && ((again & (1 << write)) == 0 || HEAD(now_config) == (node)))
#define ASKED(write) asked = asked | (1 << write);
#define USED(node) failing[write] = failing[write] & ~FAIL_BIT(config[node], node);
#else
#define ASKS(node, write) true
#define ASKED(write)
#define USED(node)
#endif

/* Each request that was ever made, at each head. */
proctype Requests(byte write) {
    do
    :: d_step { RUNNING && SERVES_WRITE(0, write) -> ASKED(write) on_request(0, write); clear() }
    :: d_step { RUNNING && SERVES_WRITE(1, write) -> ASKED(write) on_request(1, write); clear() }
    :: d_step { RUNNING && SERVES_WRITE(2, write) -> ASKED(write) on_request(2, write); clear() }
    /* A CAS that the head has not executed: it passes every member on its way to the tail, which answers it. */
#if defined(NO_EPOCH) || defined(NO_EPOCH_ON_CAS)
#define GETS_FAILING(node) (MEMBER(node) && !frozen[config[node]] && PLACED(node) && (failing[write] & (FAIL_BIT(1, node) | FAIL_BIT(2, node) | FAIL_BIT(3, node))) != 0)
#else
#define GETS_FAILING(node) (MEMBER(node) && !frozen[config[node]] && PLACED(node) && (failing[write] & FAIL_BIT(config[node], node)) != 0)
#endif
/* It has been replaced, and has heard of a version of a later chain, where another copy may have been executed. */
#ifdef OUTDATED_TAIL
#define OUTDATED(node) false
#else
#define OUTDATED(node) (EPOCH(committed[node]) > EPOCH_OF(config[node]))
#endif
#ifdef DIRTY_CAS_FAILS
#define GONE(node) true
#else
#define GONE(node) (committed[node] != expected[write])
#endif
#define FAILS(node) (GETS_FAILING(node) && IS_TAIL(node) && CLEAN(node) && !OUTDATED(node) && GONE(node))
#define SENDS_ON(node) (GETS_FAILING(node) && !IS_TAIL(node) && (failing[write] & FAIL_BIT(config[node], NEXT(config[node], node))) == 0)
    :: d_step { RUNNING && FAILS(0) -> USED(0) printf("node 0: CAS %d fails\n", write); answer_failed(write, value[0], committed[0]); clear() }
    :: d_step { RUNNING && FAILS(1) -> USED(1) printf("node 1: CAS %d fails\n", write); answer_failed(write, value[1], committed[1]); clear() }
    :: d_step { RUNNING && FAILS(2) -> USED(2) printf("node 2: CAS %d fails\n", write); answer_failed(write, value[2], committed[2]); clear() }
    :: d_step { RUNNING && SENDS_ON(0) -> USED(0) k = config[0]; d = NEXT(k, 0); printf("node 0: CAS %d passes\n", write); send_failing(write, k, d); clear() }
    :: d_step { RUNNING && SENDS_ON(1) -> USED(1) k = config[1]; d = NEXT(k, 1); printf("node 1: CAS %d passes\n", write); send_failing(write, k, d); clear() }
    :: d_step { RUNNING && SENDS_ON(2) -> USED(2) k = config[2]; d = NEXT(k, 2); printf("node 2: CAS %d passes\n", write); send_failing(write, k, d); clear() }
#ifdef QUIET
    :: d_step { GETS_FAILING(0) && LOSSY -> printf("a CAS to node 0 is lost\n"); USED(0) clear() }
    :: d_step { GETS_FAILING(1) && LOSSY -> printf("a CAS to node 1 is lost\n"); USED(1) clear() }
    :: d_step { GETS_FAILING(2) && LOSSY -> printf("a CAS to node 2 is lost\n"); USED(2) clear() }
#endif
#ifdef REPAIR_BY_ANY_STATUS
    /* The tail's RETRY to a stamped CAS: the expected version, and the value that the CAS would write. */
#define RETRIES(node) (GETS_FAILING(node) && IS_TAIL(node) && expected[write] != 0 && (!CLEAN(node) || committed[node] == expected[write]))
    :: d_step { RUNNING && RETRIES(0) -> tell(expected[write], write, 0); clear() }
    :: d_step { RUNNING && RETRIES(1) -> tell(expected[write], write, 0); clear() }
    :: d_step { RUNNING && RETRIES(2) -> tell(expected[write], write, 0); clear() }
#endif
    od
}

#if FIRST > 0
/* Each attempt's packet, at each head. */
#define TAKES_FIRST(node, write) (RUNNING && kind[write] != 0 && IS_HEAD(node) && !frozen[config[node]] && PLACED(node))
proctype First(byte f) {
    do
    :: d_step { TAKES_FIRST(0, VALUES + f) -> on_request(0, VALUES + f); clear() }
    :: d_step { TAKES_FIRST(1, VALUES + f) -> on_request(1, VALUES + f); clear() }
    :: d_step { TAKES_FIRST(2, VALUES + f) -> on_request(2, VALUES + f); clear() }
    od
}
#endif

inline read(me, node) {
    n = node; v = SERVED_VERSION(n); w = SERVED(n);
    printf("node %d (config %d): READ of client %d: answer %d (version %d.%d)\n", n, config[n], me, w, EPOCH(v), SEQ(v));
    answer(me, w, v)
}

proctype Client(bit me) {
    do
    :: d_step {
        state[me] == IDLE && reads[me] < READS(me) ->
        printf("client %d: READ\n", me);
        reads[me]++; state[me] = READING;
        clear()
    }
    :: d_step {
        state[me] == IDLE && requests[me] < WRITES(me) && HOLDS(me) && (PUTS & (1 << me)) != 0 ->
        requests[me]++; state[me] = WRITING;
        kind[CURRENT(me)] = WRITE;
        if :: requests[me] == WRITES(me) -> seen[me] = 0; seen_value[me] = 0 :: else fi;
        printf("client %d: WRITE %d\n", me, CURRENT(me));
        clear()
    }
    :: d_step {
        state[me] == IDLE && requests[me] < WRITES(me) && HOLDS(me) && (CASES & (1 << me)) != 0 && TOLD(me) ->
        requests[me]++; state[me] = WRITING;
        kind[CURRENT(me)] = CAS; expected[CURRENT(me)] = seen[me]; expected_value[CURRENT(me)] = seen_value[me];
        if :: requests[me] == WRITES(me) -> seen[me] = 0; seen_value[me] = 0 :: else fi;
        printf("client %d: CAS %d, expecting %d.%d\n", me, CURRENT(me), EPOCH(expected[CURRENT(me)]), SEQ(expected[CURRENT(me)]));
        clear()
    }
#ifdef GUESS
    /* A version that it was not told: the next one. */
    :: d_step {
        state[me] == IDLE && requests[me] < WRITES(me) && HOLDS(me) && (CASES & (1 << me)) != 0 && SEQ(latest[0]) < 7 ->
        requests[me]++; state[me] = WRITING;
        kind[CURRENT(me)] = CAS; expected[CURRENT(me)] = VERSION(1, SEQ(latest[0]) + 1); expected_value[CURRENT(me)] = 7;
        printf("client %d: CAS %d, guessing %d.%d\n", me, CURRENT(me), EPOCH(expected[CURRENT(me)]), SEQ(expected[CURRENT(me)]));
        clear()
    }
#endif
    :: d_step { state[me] == READING && SERVES(0) -> read(me, 0); clear() }
    :: d_step { state[me] == READING && SERVES(1) -> read(me, 1); clear() }
    :: d_step { state[me] == READING && SERVES(2) -> read(me, 2); clear() }
    od
}
