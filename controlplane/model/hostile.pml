/* SPDX-License-Identifier: Apache-2.0
 *
 * A host that knows everything and heeds nothing. It can put whatever it likes on the wire, but at its own port alone.
 *
 *   Hostile ── any request ──▶ first switch ── the port's principal, a session that is leased to it ──▶ Forged ──▶ any head
 *
 * What is no request (ACKs, replies, what is STAMPED) its first switch drops, whatever it says: that is left out here.
 */

/* ---- The first switch ---- */

#if defined(LEASED) && WRITES0 == 0
#define LEASED_TO_IT(session) ((session) == 0 && leasing == 0)
#else
#define LEASED_TO_IT(session) false
#endif
#ifdef NO_SESSION_OWNER
#define ADMITTED(session) true
#else
#define ADMITTED(session) ((session) == NO_SESSION_ID || LEASED_TO_IT(session))
#endif
/* It says that it is the clients'. */
#ifdef ANY_PRINCIPAL
#define WRITTEN_PRINCIPAL F_AS_CLIENT
#else
#define WRITTEN_PRINCIPAL 0
#endif

#define FORGES(session) (RUNNING && forgeries < FORGERIES && ADMITTED(session))
/* The number does not matter without a session. */
#define FORGES_NUMBERED(session) (FORGES(session) && (session) != NO_SESSION_ID)

inline forge(its_kind, attributes) {
    forged[forgeries] = (attributes) | WRITTEN_PRINCIPAL;
    w = VALUES + forgeries;
    kind[w] = its_kind;
    if :: its_kind == CAS -> expected[w] = latest[HEAD(now_config)] :: else fi;
    forgeries++;
    if
    :: ITS(w, F_READ) -> printf("hostile host: READ of the clients' key\n")
    :: OTHER_KEY(w) -> printf("hostile host: WRITE %d of its own key, session %d, request %d\n", w, SESSION(w), NUMBER(w))
    :: !ITS(w, F_READ) && !OTHER_KEY(w) && its_kind == CAS ->
        printf("hostile host: CAS %d of the clients' key, session %d, request %d\n", w, SESSION(w), NUMBER(w))
    :: !ITS(w, F_READ) && !OTHER_KEY(w) && its_kind == WRITE ->
        printf("hostile host: WRITE %d of the clients' key, session %d, request %d\n", w, SESSION(w), NUMBER(w))
    fi
}

proctype Hostile(byte session) {
    do
    :: d_step { FORGES(session) -> forge(WRITE, session | F_NEXT); clear() }
    :: d_step { FORGES(session) -> forge(CAS, session | F_NEXT); clear() }
    :: d_step { FORGES_NUMBERED(session) -> forge(WRITE, session | F_AFTER); clear() }
    :: d_step { FORGES_NUMBERED(session) -> forge(CAS, session | F_AFTER); clear() }
    :: d_step { FORGES_NUMBERED(session) -> forge(WRITE, session | F_LARGEST); clear() }
    :: d_step { FORGES_NUMBERED(session) -> forge(CAS, session | F_LARGEST); clear() }
    /* What it does to its own key matters to others by the session's record alone. */
    :: d_step { FORGES_NUMBERED(session) -> forge(WRITE, session | F_NEXT | F_OTHER_KEY); clear() }
    :: d_step { FORGES_NUMBERED(session) -> forge(WRITE, session | F_AFTER | F_OTHER_KEY); clear() }
    :: d_step { FORGES_NUMBERED(session) -> forge(WRITE, session | F_LARGEST | F_OTHER_KEY); clear() }
#ifndef WRITES_ONLY
    :: d_step { FORGES(session) && session == NO_SESSION_ID -> forge(0, session | F_READ); clear() }
#endif
    od
}

/* ---- Who serves it ---- */

#ifdef NO_ACCESS
#define ALLOWED(w) true
#else
#define ALLOWED(w) (OTHER_KEY(w) || ITS(w, F_AS_CLIENT))
#endif

/* A WRITE of its own key. It has been written never before, so its first version is 1 in each epoch, and nobody but its sender minds that it stays so. */
inline on_foreign_request(node, write) {
    n = node; w = write; k = config[n]; c = SESSION(w); q = NUMBER(w);
    newer = NEWER(session_request[n * SESSIONS + c], q);
    equal = q == session_request[n * SESSIONS + c];
    if
    :: newer || (equal && session_version[n * SESSIONS + c] != 0) ->
        if :: newer -> session_request[n * SESSIONS + c] = q; session_version[n * SESSIONS + c] = VERSION(EPOCH_OF(k), 1) :: else fi;
        v = session_version[n * SESSIONS + c];
        printf("node %d (head, config %d): request of write %d, of another key, has version %d.%d\n", n, k, w, EPOCH(v), SEQ(v));
        if
        :: TAIL(k) == n -> skip
        :: else ->
            d = NEXT(k, n);
            send(k, v, w, 0, d);
            send(k, v, w, 0, n)                       /* re-propagated */
        fi
    :: else
    fi
}

inline on_forged(node, write) {
    if
    :: !ALLOWED(write) -> printf("node %d: refuses request %d of the hostile host\n", node, write)
    :: ALLOWED(write) && OTHER_KEY(write) -> on_foreign_request(node, write)
    :: ALLOWED(write) && !OTHER_KEY(write) -> on_request(node, write)
    fi
}

/* A READ is answered where a client's would be. */
inline on_forged_read(node, write) {
    concealed = !ALLOWED(write);
    printf("node %d: is asked for the clients' key by the hostile host\n", node);
    if :: !concealed -> printf("    VIOLATION: the hostile host is told what it may not read\n") :: else fi;
    assert(concealed)
}

#ifdef QUIET
#define ARRIVED(f) forged[f] = forged[f] | F_ARRIVED;
#define TO_COME(f) (forged[f] != 0 && (forged[f] & F_ARRIVED) == 0)
#else
#define ARRIVED(f)
#define TO_COME(f) (forged[f] != 0)
#endif
#define TAKES_FORGED(f, node) (RUNNING && TO_COME(f) && (forged[f] & F_READ) == 0 && IS_HEAD(node) && !frozen[config[node]] && PLACED(node))
#define READS_FORGED(f, node) (RUNNING && TO_COME(f) && (forged[f] & F_READ) != 0 && SERVES(node))

proctype Forged(byte f) {
    do
    :: d_step { TAKES_FORGED(f, 0) -> ARRIVED(f) on_forged(0, VALUES + f); clear() }
    :: d_step { TAKES_FORGED(f, 1) -> ARRIVED(f) on_forged(1, VALUES + f); clear() }
    :: d_step { TAKES_FORGED(f, 2) -> ARRIVED(f) on_forged(2, VALUES + f); clear() }
    :: d_step { READS_FORGED(f, 0) -> ARRIVED(f) on_forged_read(0, VALUES + f); clear() }
    :: d_step { READS_FORGED(f, 1) -> ARRIVED(f) on_forged_read(1, VALUES + f); clear() }
    :: d_step { READS_FORGED(f, 2) -> ARRIVED(f) on_forged_read(2, VALUES + f); clear() }
#ifdef QUIET
    :: d_step { TO_COME(f) && LOSSY -> printf("a request of the hostile host is lost\n"); ARRIVED(f) clear() }
#endif
    od
}
