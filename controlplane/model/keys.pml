/* SPDX-License-Identifier: Apache-2.0
 *
 * The controller adds a key, or removes one: docs/protocol.md, "Keys". What it writes is a packet-out, which can wait for as long as it likes at whichever switch, and is passed on
 * to whichever head: like a client's request it can arrive anywhere at any time.
 */

#if FIRST > 0
/* ---- A key is added. Its slot was an earlier key's, and holds that key's tombstone. The controller makes entries for the new key at every member, tail first. They are *hidden*:
 * clients find no key. Then it writes the key by CAS on the version that the slot has, in several attempts, each with a session of its pool. When a write that is later than all
 * attempts is committed at every member, it opens the entries.
 *
 * To the monitor the value of the first write, and the tombstone, are 0: whatever a client reads later is that or a client's. ---- */
byte unseen;                         /* bit n: node n's entry is hidden */
bit opening;                         /* the first write is committed at every member */
byte attempts;
#define VISIBLE(n) (PLACED(n) && (unseen & (1 << (n))) == 0)
#define OUTCOME(x) ((x) >= VALUES && (x) < ALL -> 0 : (x))
#define TOLD(c) (seen[c] != 0)       /* the key has a version from the beginning, so nobody is told that it has none */

inline begin_addition() {
    i = 0;
    do
    :: i < NODES ->
        unplaced = unplaced | (1 << i);
        if :: IN(1, i) -> latest[i] = VERSION(0, 2); committed[i] = VERSION(0, 2) :: else fi;
        i++
    :: else -> break
    od;
    i = 0
}

#define READY (INSTALLED && joining == NOBODY && !frozen[now_config])
#define ALL_HAVE ((unplaced & present[now_config]) == 0)
#define INSERTABLE(node) (!opening && READY && IN(now_config, node) && !PLACED(node) && (TAIL(now_config) == (node) || \
    (PLACED(TAIL(now_config)) && (AT(now_config, 1) == (node) || PLACED(AT(now_config, 1))))))
inline insert(node) {
    unplaced = unplaced & ~(1 << (node));
#ifndef ADDED_OPEN
    unseen = unseen | (1 << (node));
#endif
    printf("node %d: has an entry for the key\n", node)
}

#define ATTEMPTABLE (!opening && READY && ALL_HAVE && attempts < FIRST)
inline attempt() {
    w = VALUES + attempts;
    expected[w] = latest[HEAD(now_config)];           /* by FETCH, right before */
#ifdef BLIND_WRITES
    kind[w] = WRITE;
    printf("controller: the key's first write: WRITE %d\n", w);
#else
    kind[w] = CAS;
    printf("controller: the key's first write: CAS %d, expecting %d.%d\n", w, EPOCH(expected[w]), SEQ(expected[w]));
#endif
    attempts++
}

#define LIKE_THE_HEAD(node) (!IN(now_config, node) || (CLEAN(node) && committed[node] == committed[HEAD(now_config)]))
#define WRITTEN (!opening && attempts > 0 && READY && ALL_HAVE && committed[HEAD(now_config)] > expected[VALUES + attempts - 1] && \
    LIKE_THE_HEAD(0) && LIKE_THE_HEAD(1) && LIKE_THE_HEAD(2))
#define OPENABLE(node) (opening && READY && IN(now_config, node) && (unseen & (1 << (node))) != 0)
#else
#define VISIBLE(n) PLACED(n)
#define OUTCOME(x) (x)
#define TOLD(c) true
#endif

#ifdef GROWS
/* ---- A chain takes a switch in while it has no keys. The switch was a member before, and has what it had then: the value of a key that was removed since, and a record of each session
 * from another life of it. ---- */
#define EARLIER_VALUE ALL
#if FIRST > 0
#define NO_KEYS (unplaced == 7)
#else
#define NO_KEYS (requests[0] + requests[1] + reads[0] + reads[1] == 0)
#endif
inline begin_growth() {
    i = 0;
    do
    :: i < NODES ->
        if
        :: !IN(1, i) ->
            latest[i] = VERSION(0, 1); committed[i] = VERSION(0, 1); value[i] = EARLIER_VALUE;
            session_request[i * SESSIONS] = LARGEST; session_request[i * SESSIONS + 1] = LARGEST
        :: else
        fi;
        i++
    :: else -> break
    od;
    i = 0
}
#ifdef POOL
/* Session 0 is the controller's own. It makes the record of that begin anew at each member that has another life's. */
#define ANNOUNCEABLE(node) (IN(now_config, node) && INSTALLED && session_request[(node) * SESSIONS] == LARGEST)
#endif
#else
#define NO_KEYS true
#endif

#ifdef DELETES
/* ---- A key is removed: client 1 is the controller, and its one request the DELETE. The controller closes the entries at every member: heads take no client's request. Then it
 * deletes what the slot has by then, by CAS. Another controller, which does not know of the removal, takes over at any moment and opens the entries again: the key is deleted then,
 * or as it was. ---- */
byte closed;                         /* bit n: node n's entry is closed */
bit reopening;
#define CLOSED_TO(node, write) (CLIENT(write) == 0 && (closed & (1 << (node))) != 0)
#ifdef BLIND_DELETES
/* The controller sends a DELETE only when the head is clean. (Otherwise the shortest counter-example is a DELETE of a write that was under way. That is no fault: only the monitor,
 * for which a DELETE is a CAS, would see one.) With the rule kept the search covers a dirty head too. */
#define BLIND(write) (CLIENT(write) == 1)
#define FETCHABLE CLEAN(HEAD(now_config))
#else
#define BLIND(write) false
#define FETCHABLE true
#endif
#define CLOSABLE(node) (!reopening && INSTALLED && IN(now_config, node) && (closed & (1 << (node))) == 0)
#define DELETABLE (!reopening && INSTALLED && (closed & present[now_config]) == present[now_config] && FETCHABLE && requests[1] == 0)
inline delete() {
    requests[1] = 1; state[1] = WRITING;
    w = CURRENT(1); n = HEAD(now_config);
    kind[w] = CAS; expected[w] = committed[n]; expected_value[w] = value[n];          /* by FETCH */
    printf("controller: DELETE %d, expecting %d.%d\n", w, EPOCH(expected[w]), SEQ(expected[w]))
}
#define REOPENABLE(node) (reopening && (closed & (1 << (node))) != 0)
#else
#define CLOSED_TO(node, write) false
#define BLIND(write) false
#endif
