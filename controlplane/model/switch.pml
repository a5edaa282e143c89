/* SPDX-License-Identifier: Apache-2.0
 *
 * What a switch does with each packet: docs/protocol.md, "What a switch does". Each inline is one packet at one node.
 */

/* ---- Sending ---- */

inline send(its_config, its_version, its_write, no_session, to) {
    key = ((its_config) << 10) | ((its_version) << 4) | ((its_write) << 1) | (no_session);
    if
#if !defined(NO_EPOCH) && !defined(KEEP_ALL)
    :: config[to] > its_config -> skip                /* it would be dropped there, now and for ever: configurations only grow */
#endif
    :: else ->
        i = 0;
        do :: i < packets && packet[i] < key -> i++ :: else -> break od;
        if
        :: i < packets && packet[i] == key -> sent_to[i] = sent_to[i] | (1 << (to))
        :: else ->
            assert(packets < PACKETS);                /* bound */
            j = packets;
            do :: j > i -> packet[j] = packet[j - 1]; sent_to[j] = sent_to[j - 1]; j-- :: else -> break od;
            packet[i] = key; sent_to[i] = 1 << (to);
            packets++
        fi
    fi
}

inline tell(its_version, its_value, its_write) {
    key = ((its_version) << 6) | ((its_value) << 3) | (its_write);
    i = 0;
#ifdef SAME_VALUE
    do :: i < news -> assert(L_VERSION(learn[i]) != L_VERSION(key) || L_VALUE(learn[i]) == L_VALUE(key)); i++ :: else -> break od;
    i = 0;
#endif
    do :: i < news && learn[i] < key -> i++ :: else -> break od;
    if
    :: i < news && learn[i] == key -> skip
    :: else ->
        assert(news < NEWS);                          /* bound */
        j = news;
#ifdef QUIET
        do :: j > i -> learn[j] = learn[j - 1]; told[j] = told[j - 1]; j-- :: else -> break od;
#else
        do :: j > i -> learn[j] = learn[j - 1]; j-- :: else -> break od;
#endif
        learn[i] = key;
        news++
    fi;
#ifdef QUIET
    told[i] = 7 ^ present[now_config];
#endif
    j = 0
}

/* A switch that has a newer configuration drops what is on its way under an older one: forget it. */
inline forget_packets_to(node) {
#if defined(NO_EPOCH) || defined(KEEP_ALL)
    skip
#else
    i = 0; j = 0;
    do
    :: i < packets ->
        if :: P_CONFIG(packet[i]) != config[node] -> sent_to[i] = sent_to[i] & (7 ^ (1 << (node))) :: else fi;
        if
        :: sent_to[i] == 0 -> skip
        :: else -> packet[j] = packet[i]; sent_to[j] = sent_to[i]; j++
        fi;
        i++
    :: else -> break
    od;
    i = j;
    do :: i < packets -> packet[i] = 0; sent_to[i] = 0; i++ :: else -> break od;
    packets = j;
    i = 1;
    do
    :: i < VALUES ->
        tmp = 1;
        do
        :: tmp <= CONFIGS ->
            if :: tmp != config[node] && (failing[i] & FAIL_BIT(tmp, node)) != 0 -> failing[i] = failing[i] ^ FAIL_BIT(tmp, node) :: else fi;
            tmp++
        :: else -> break
        od;
        i++
    :: else -> break
    od
#endif
}

inline send_failing(write, its_config, to) {
    if
#if !defined(NO_EPOCH) && !defined(NO_EPOCH_ON_CAS) && !defined(KEEP_ALL)
    :: config[to] > its_config -> skip
#endif
    :: else -> failing[write] = failing[write] | FAIL_BIT(its_config, to)
    fi
}

/* While clean, cell 0 is what counts. */
inline tidy(node) {
    if :: CLEAN(node) -> newest_value[node] = 0; newest_writer[node] = 0 :: else fi
}

inline record_session(node, write, its_version) {
    if
    :: TAKES(session_request[node * SESSIONS + SESSION(write)], NUMBER(write)) ->
        session_request[node * SESSIONS + SESSION(write)] = NUMBER(write);
        session_version[node * SESSIONS + SESSION(write)] = its_version
    :: else
    fi
}

/* ---- WRITE and CAS, unstamped, at the head ---- */

inline on_request(node, write) {
    n = node; w = write; k = config[n]; c = SESSION(w); q = NUMBER(w);
    if
    :: c == NO_SESSION_ID -> newer = 1; equal = 0
    :: else -> newer = NEWER(session_request[n * SESSIONS + c], q); equal = q == session_request[n * SESSIONS + c]
    fi;
#ifdef NO_SESSION
    newer = 1; equal = 0;
#endif
#ifdef NO_OLD_DROP
    newer = newer || !equal;
#endif
    if
    :: !newer && !equal -> skip                       /* an older request, or one of another lease: dropped */
#ifndef OUTDATED_HEAD
    :: (newer || equal) && EPOCH(latest[n]) > EPOCH_OF(k) ->
        printf("node %d (head, config %d): write %d is not for a head of this configuration\n", n, k, w);
        if :: newer && c != NO_SESSION_ID -> session_request[n * SESSIONS + c] = q; session_version[n * SESSIONS + c] = 0 :: else fi
#endif
    :: else ->
        if
        :: kind[w] == WRITE || BLIND(w) -> assigned = newer
#if defined(DIRTY_CAS_WAITS) || defined(DIRTY_CAS_SENT_ON)
        :: else -> assigned = CLEAN(n) && committed[n] == expected[w]
#else
        :: else -> assigned = latest[n] == expected[w]
#endif
        fi;
        assigned = assigned && SEQ(latest[n]) < 7;    /* (Only mutants that execute writes over and over get there.) */
#ifdef DROP_WHEN_FULL
        filled = newer && latest[n] != committed[n];    /* the paper's rule, with one dirty cell */
        assigned = assigned && !filled;
#endif
        if
#ifdef DROP_WHEN_FULL
        :: filled -> printf("node %d (head): no dirty cell is free for write %d\n", n, w)
#endif
        :: assigned ->
            v = VERSION(EPOCH_OF(k), SEQ(latest[n]) + 1);
            latest[n] = v;
            if :: c != NO_SESSION_ID -> session_request[n * SESSIONS + c] = q; session_version[n * SESSIONS + c] = v :: else fi;
            printf("node %d (head, config %d): request of write %d gets version %d.%d\n", n, k, w, EPOCH(v), SEQ(v));
#ifdef GUESS
            i = 1;
            do :: i < VALUES -> if :: kind[i] == CAS && expected[i] == v -> expected_value[i] = w :: else fi; i++ :: else -> break od;
#endif
            if
            :: TAIL(k) == n -> committed[n] = v; value[n] = w; tidy(n); answer_done(w, v)
            :: else ->
                newest_value[n] = w; newest_writer[n] = (c == NO_SESSION_ID -> 0 : w); ok = c == NO_SESSION_ID;
                d = NEXT(k, n);
                send(k, v, w, ok, d)
            fi
        :: !assigned && equal && session_version[n * SESSIONS + c] != 0 ->
            v = session_version[n * SESSIONS + c];
            printf("node %d (head, config %d): request of write %d again, keeps version %d.%d\n", n, k, w, EPOCH(v), SEQ(v));
            if
            :: TAIL(k) == n -> answer_done(w, v)
            :: else -> d = NEXT(k, n); send(k, v, w, 0, d)
            fi
        :: !assigned && !(equal && session_version[n * SESSIONS + c] != 0) && kind[w] == CAS ->
            if :: newer && c != NO_SESSION_ID -> session_request[n * SESSIONS + c] = q; session_version[n * SESSIONS + c] = 0 :: else fi;
            if
#ifdef DIRTY_CAS_WAITS
#define ASKS_TAIL CLEAN(n)
#else
#define ASKS_TAIL 1
#endif
            :: ASKS_TAIL && !FOREIGN(w) ->            /* (what that would tell a hostile host, a READ tells it too) */
                printf("node %d (head, config %d): CAS %d expects %d.%d, committed is %d.%d, the latest %d.%d\n", n, k, w, EPOCH(expected[w]), SEQ(expected[w]),
                    EPOCH(committed[n]), SEQ(committed[n]), EPOCH(latest[n]), SEQ(latest[n]));
                if
#ifdef CAS_FAILED_BY_HEAD
                :: CLEAN(n) -> answer_failed(w, value[n], committed[n])
#endif
#ifdef CAS_FAILED_BY_HEAD_WITH_LEASE
                :: CLEAN(n) && lease[n] -> answer_failed(w, value[n], committed[n])
#endif
                :: TAIL(k) == n && CLEAN(n) -> answer_failed(w, value[n], committed[n])
                :: else -> if :: TAIL(k) != n -> d = NEXT(k, n); send_failing(w, k, d) :: else fi
                fi
            :: else                                   /* RETRY */
            fi
        :: else
        fi
    fi
}

/* ---- WRITE, stamped ---- */

#ifdef NO_EPOCH
#define SAME_EPOCH(node, p) true
#else
#define SAME_EPOCH(node, p) (EPOCH_OF(config[node]) == EPOCH_OF(P_CONFIG(p)))
#endif
#ifdef FREEZE_AT_HEAD_ONLY
#define FROZEN(node) false
#else
#define FROZEN(node) frozen[config[node]]
#endif
#define ACCEPTS(node, p) (MEMBER(node) && !FROZEN(node) && SAME_EPOCH(node, p) && PLACED(node))

/* Of another key, of which nothing is modelled but the session's record. */
inline pass_on(its_version, its_write, its_config) {
    if
    :: IS_TAIL(n) -> tell(its_version, 0, its_write)
    :: else -> d = NEXT(k, n); send(its_config, its_version, its_write, 0, d)
    fi
}

inline on_write(node, p) {
    n = node; key = p; v = P_VERSION(p); w = P_WRITE(p); ok = P_NO_SESSION(p); tmp = P_CONFIG(p); k = config[n];
    newer = v > (IS_TAIL(n) -> committed[n] : latest[n]);
    printf("node %d (config %d): WRITE %d, version %d.%d, of config %d\n", n, k, w, EPOCH(v), SEQ(v), tmp);
    if
#ifdef SESSION_AT_HEAD_ONLY
    :: HEAD(k) != n -> skip
#endif
#ifdef SESSION_NOT_WHEN_OVERTAKEN
    :: v < latest[n] -> skip
#endif
    :: else -> if :: !ok -> record_session(n, w, v) :: else fi
    fi;
    if
    :: OTHER_KEY(w) -> pass_on(v, w, tmp)
    :: !OTHER_KEY(w) && IS_TAIL(n) ->
#ifdef NO_COMMIT_ORDER
        newer = 1; latest[n] = v;
#endif
        if :: newer -> committed[n] = v; value[n] = w :: else fi;
        if :: v > latest[n] -> latest[n] = v :: else fi;
        tidy(n);
        equal = v == committed[n];
        if
        :: equal -> if :: ok -> tell(v, value[n], 0) :: else -> tell(v, value[n], w) fi
        :: else
        fi;
        /* OK or SUPERSEDED. (A re-driven write with its session may be answered too here, which is more than NO_REPLY allows.) */
        if :: ok -> skip :: else -> answer_done(w, v) fi
    :: else ->
#ifdef NO_STORE_ORDER
        newer = 1;
#endif
        if
        :: newer ->
            latest[n] = v; newest_value[n] = w; newest_writer[n] = (ok -> 0 : w);
            tidy(n)
        :: else
        fi;
#ifdef ACK_FROM_ANY
        tell(v, w, w);
#endif
        d = NEXT(k, n);
        send(tmp, v, w, ok, d)
    fi
}

/* ---- ACK; and replies that pass through (no session) ---- */

inline commit_news(node, its_version, its_value, its_write) {
    if
#ifdef NO_ACK_VERSION
    :: true -> committed[node] = its_version; latest[node] = its_version; value[node] = its_value
#endif
#ifdef ACK_OF_ANYTHING
    :: true -> if :: !CLEAN(node) -> committed[node] = latest[node]; value[node] = newest_value[node] :: else fi
#endif
    :: its_version > committed[node] ->
#ifdef ACK_WITHOUT_VALUE
        if
        :: its_write == 0 -> value[node] = its_value  /* a reply has it */
        :: its_write != 0 && !CLEAN(node) -> value[node] = newest_value[node]
        :: else
        fi;
#else
        value[node] = its_value;
#endif
        committed[node] = its_version;
        if :: its_version > latest[node] -> latest[node] = its_version :: else fi
    :: else
    fi;
    tidy(node);
#ifndef ACK_WITHOUT_SESSION
    if :: its_write != 0 -> record_session(node, its_write, its_version) :: else fi
#endif
}

inline on_news(node, l) {
    n = node; v = L_VERSION(l); x = L_VALUE(l); w = L_WRITE(l);
    printf("node %d (config %d): ACK of %d, version %d.%d\n", n, config[n], x, EPOCH(v), SEQ(v));
    if
    :: OTHER_KEY(w) -> record_session(n, w, v)
    :: else -> commit_news(n, v, x, w)
    fi
}

/* ---- READ ---- */

#if defined(NO_LEASE) || defined(FAIL_STOP)
#define LEASE(node) true
#else
#define LEASE(node) lease[node]
#endif
#if defined(READ_NEWEST_ANYWHERE) || defined(READ_COMMITTED_ANYWHERE)
#define READABLE(node) true
#else
#define READABLE(node) (CLEAN(node) || IS_TAIL(node))
#endif
#ifdef SHADOW_SERVES
#define SERVES(node) ((MEMBER(node) && LEASE(node) || joining == (node)) && READABLE(node) && VISIBLE(node))
#else
#define SERVES(node) (MEMBER(node) && LEASE(node) && READABLE(node) && VISIBLE(node))
#endif
#define NEWEST(node) (CLEAN(node) -> value[node] : newest_value[node])
#if defined(READ_COMMITTED_ANYWHERE) || defined(TAIL_READS_COMMITTED)
#define SERVED(node) value[node]
#define SERVED_VERSION(node) committed[node]
#else
#define SERVED(node) NEWEST(node)
#define SERVED_VERSION(node) latest[node]
#endif
