/* SPDX-License-Identifier: Apache-2.0
 *
 * NetCRAQ's protocol (docs/protocol.md) for one key, to be searched exhaustively by Spin. docs/model.md says what is modelled and how, what is left out and why that
 * is sound, and what came of it. check.py runs it; each configuration and each mutant is a set of -D below.
 *
 *   Client x 2 ──requests──▶ Network ──▶ nodes 0, 1, 2 (registers, one configuration each) ◀── Controller (epochs, leases, recovery)
 *       │                                                                                         
 *       └── Monitor: is there still an order of all operations that explains every answer?
 *
 * Each step is one packet handled by one switch (the pipeline is atomic), one decision of the controller, or one call of a client.
 */

/* ---- Bounds (check.py sets them) ---- */
#ifndef CHAIN
#define CHAIN 36               /* the first chain, two bits a member, head lowest, 3 for none: 36 = 0,1,2; 52 = 0,1 */
#endif
#ifndef WRITES0
#define WRITES0 1              /* WRITEs and CASes of client 0 ... */
#endif
#ifndef WRITES1
#define WRITES1 1              /* ... and of client 1 */
#endif
#ifndef READS0
#define READS0 1
#endif
#ifndef READS1
#define READS1 1
#endif
#ifndef PUTS
#define PUTS 3                 /* which clients may WRITE, and which may CAS: bit 0 client 0, bit 1 client 1 */
#endif
#ifndef CASES
#define CASES 0
#endif
#ifndef REMOVALS
#define REMOVALS 0             /* members that the controller gives up */
#endif
#ifndef JOINS
#define JOINS 0                /* switches that it lets in */
#endif
#ifndef TAKEOVERS
#define TAKEOVERS 0            /* controllers that take over from one that is dead, or thought so */
#endif
#ifndef MOVES
#define MOVES 0                /* times that the key is taken out and put into another slot */
#endif
#ifndef REDRIVE_FROM
#define REDRIVE_FROM 1         /* the first configuration in which what is dirty is driven down again */
#endif
#define CONFIGS (1 + REMOVALS + 2 * JOINS + TAKEOVERS)
#ifndef PACKETS
#define PACKETS 12             /* different WRITE packets; running out is an error, not a truncation */
#endif
#ifndef NEWS
#define NEWS 8                 /* different ACKs and replies */
#endif

/* ---- Names ---- */
#define NODES 3
#define NOBODY 3
#define VALUES (1 + WRITES0 + WRITES1)      /* a value is the number of the write that wrote it; 0: never written */
#define CLIENT(w) ((w) > WRITES0 -> 1 : 0)
#define REQUEST(w) ((w) > WRITES0 -> (w) - WRITES0 : (w))
#define WRITES(c) ((c) -> WRITES1 : WRITES0)
#define READS(c) ((c) -> READS1 : READS0)
#define CURRENT(c) (requests[c] + ((c) -> WRITES0 : 0))

#define VERSION(epoch, seq) ((epoch) * 8 + (seq))
#define SEQ(v) ((v) & 7)
#define EPOCH(v) ((v) >> 3)

#define IDLE 0
#define READING 1
#define WRITING 2
#define WRITE 1
#define CAS 2

/* ---- The chain's configurations. config 0: none. ---- */
byte members[CONFIGS + 1];           /* as CHAIN */
bit frozen[CONFIGS + 1];
#if defined(NO_PERSIST) || defined(NO_STORE_COMPARE)
#define EPOCHS
byte epoch[CONFIGS + 1];             /* two configurations may have the same */
#define EPOCH_OF(k) epoch[k]
#else
#define EPOCH_OF(k) (k)
#endif
byte tail[CONFIGS + 1], present[CONFIGS + 1];    /* what follows from members: the tail; bit n: node n is a member */
#define AT(k, p) ((members[k] >> (2 * (p))) & 3)
#define HEAD(k) (members[k] & 3)
#define TAIL(k) tail[k]
#define NEXT(k, n) (HEAD(k) == (n) -> AT(k, 1) : AT(k, 2))
#define IN(k, n) ((present[k] >> (n)) & 1)

/* ---- Nodes ---- */
#if MOVES > 0
byte unplaced;
#endif
byte config[NODES];                  /* 0: no role */
byte latest[NODES], committed[NODES];
byte newest_value[NODES];            /* the dirty cell that `latest` names, and who wrote it; both 0 while clean, when cell 0 is read */
byte newest_writer[NODES];
byte value[NODES];                   /* cell 0 */
byte session_request[NODES * 2];
byte session_version[NODES * 2];
byte empty_since[NODES];             /* it is empty, or was filled, since this configuration: it gets no part in one up to that */
bit lease[NODES];                    /* it may be live: whether it is, each step decides anew. 0: it is over for certain */

#define CLEAN(n) (latest[n] == committed[n])
#if MOVES > 0
#define PLACED(n) ((unplaced & (1 << (n))) == 0)     /* it has a key_index entry for the key */
#else
#define PLACED(n) true
#endif
#define MEMBER(n) IN(config[n], n)
#define IS_HEAD(n) (config[n] != 0 && HEAD(config[n]) == (n))
#define IS_TAIL(n) (config[n] != 0 && TAIL(config[n]) == (n))

/* ---- The network. What was sent once can arrive any number of times, at any later time, in any order, or never: a set that only grows. ---- */
byte packets;
short packet[PACKETS];               /* stamped WRITEs, sorted: configuration (3), version (6), write (3), without session (1) */
byte sent_to[PACKETS];               /* bit n: to node n */
#define P_CONFIG(p) ((p) >> 10)
#define P_VERSION(p) (((p) >> 4) & 63)
#define P_WRITE(p) (((p) >> 1) & 7)
#define P_NO_SESSION(p) ((p) & 1)
byte news;
short learn[NEWS];                   /* ACKs, and replies for read repair, to any member: version (6), value (3), write whose session it carries or 0 (3) */
#define L_VERSION(l) ((l) >> 6)
#define L_VALUE(l) (((l) >> 3) & 7)
#define L_WRITE(l) ((l) & 7)
#ifdef QUIET
byte told[NEWS];                     /* bit n: node n has got it, or it was lost on the way there */
byte asked;                          /* bit w: the request of write w has arrived */
byte driven;                         /* bit n: node n's newest was driven down again in this configuration */
bit calm;                            /* from now on nothing is lost, and the chain does not change */
bit judged;
byte again;                          /* bit w: its client has asked once more, when all was at rest */
#endif
short failing[VALUES];               /* stamped CASes on their way to the tail, by write: bit 3 (k-1) + n: of configuration k, to node n */
#define FAIL_BIT(k, n) (1 << (3 * ((k) - 1) + (n)))

/* ---- Clients. Every request that was ever made can arrive anywhere at any time. ---- */
byte state[2];
byte requests[2], reads[2];          /* how many were made */
byte kind[VALUES];                   /* of each write: 0 not made yet, WRITE, CAS */
byte expected[VALUES];               /* of a CAS, the version ... */
byte expected_value[VALUES];         /* ... and the write that was given it (the monitor's, the protocol does not know) */
byte seen[2], seen_value[2];         /* the version and value that the client was told last */

/* ---- Controllers. Configurations are what is in the store; a decision compares and swaps `now_config` there. The steps of an installation look at the store and at
 * the switches alone, so whoever takes them can be another controller than before; and one that has not heard of the newest configuration goes on with an older one. ---- */
byte now_config;
byte removals, joins, takeovers;
#if MOVES > 0
byte moving, moved_version, moved_value;
#endif
#if JOINS > 0
byte fetched_version, fetched_value, fetched_request[2], fetched_given[2];   /* ... and what it has read from the donor */
byte filled_late = NOBODY;           /* the newcomer once it is a member */
#endif
byte joining = NOBODY;               /* a spare that is being filled; the one thing that is in the memory of a controller, and is lost with it */
#define INSTALLED (config[HEAD(now_config)] == now_config && config[TAIL(now_config)] == now_config && \
                   (AT(now_config, 1) == NOBODY || config[AT(now_config, 1)] == now_config))

#define DONE (state[0] == IDLE && state[1] == IDLE && requests[0] == WRITES0 && requests[1] == WRITES1 && reads[0] == READS0 && reads[1] == READS1)

/* Scratch of a step: set before it is read. It is no part of the state; Spin's breadth-first search, which cannot leave it out, gets it cleared instead. */
#ifdef BREADTH_FIRST
#define SCRATCH
inline clear() {
    n = 0; c = 0; q = 0; k = 0; v = 0; w = 0; x = 0; i = 0; j = 0; tmp = 0; cur = 0; d = 0; key = 0; newer = 0; equal = 0; assigned = 0; filled = 0; ok = 0; settled = 0; answered = 0;
    do :: i <= VALUES -> after[i] = 0; i++ :: else -> break od;
    i = 0
}
#else
#define SCRATCH hidden
inline clear() { skip }
#endif
SCRATCH byte n, c, q, k, v, w, x, i, j, tmp, cur, d;
SCRATCH short key;
SCRATCH byte newer, equal, assigned, filled, ok, settled, answered;
SCRATCH byte after[VALUES + 1];

/* ---- The monitor: exact linearizability of a register with CAS.
 *
 * The outcome of an operation is the register's value right after it: of a WRITE its own, of a READ what it found, of a CAS its own or what it found. A possible past is the
 * register's value and the outcomes of the operations that have taken effect and are not answered yet. Taking effect can be put off until right before the next answer, of
 * whichever operation; so after an answer only the other client's operation can have taken effect, and past[o] is the set of register values (bit x: x) with its outcome
 * o-1 (o = 0: not yet). An answer that fits none of them is a violation. ---- */
byte past[VALUES + 1];
bit other;                           /* whose outcome past[] is about */
#define EFFECT(c, cur) (state[c] == READING -> (cur) : \
    (kind[CURRENT(c)] == WRITE || expected_value[CURRENT(c)] == (cur) -> CURRENT(c) : (cur)))

inline answer(client, outcome, its_version) {
    c = client; x = outcome; d = 1 - c;
    tmp = 0;
    do :: tmp <= VALUES -> after[tmp] = 0; tmp++ :: else -> break od;
    i = 0;
    do
    :: i <= VALUES && past[i] != 0 ->
        cur = 0;
        do
        :: cur < VALUES && (past[i] & (1 << cur)) != 0 ->
            if
            :: i > 0 && other == c ->                 /* it took effect before the other's last answer */
                if :: i == x + 1 -> after[0] = after[0] | (1 << cur) :: else fi
            :: else ->
                if :: EFFECT(c, cur) == x -> after[i] = after[i] | (1 << x) :: else fi;
                if
                :: i == 0 && state[d] != IDLE ->      /* the other's first */
                    tmp = EFFECT(d, cur);
                    if :: EFFECT(c, tmp) == x -> after[tmp + 1] = after[tmp + 1] | (1 << x) :: else fi
                :: else
                fi
            fi;
            cur++
        :: cur < VALUES && (past[i] & (1 << cur)) == 0 -> cur++
        :: cur >= VALUES -> break
        od;
        i++
    :: i <= VALUES && past[i] == 0 -> i++
    :: i > VALUES -> break
    od;
    ok = 0; tmp = 0; other = 0;
    do
    :: tmp <= VALUES ->
        past[tmp] = after[tmp];
        if :: after[tmp] != 0 -> ok = 1; if :: tmp > 0 -> other = d :: else fi :: else fi;
        tmp++
    :: else -> break
    od;
    state[c] = IDLE;
    /* What it was told, if it can use it once more. */
    if
    :: (CASES & (1 << c)) != 0 && requests[c] < WRITES(c) -> seen[c] = its_version; seen_value[c] = x
    :: else -> seen[c] = 0; seen_value[c] = 0
    fi;
    if :: !ok -> printf("    VIOLATION: no order of the operations explains this answer\n") :: else fi;
    assert(ok)                                        /* linearizable */
}

inline answer_write(write, outcome, its_version) {
    if
    :: state[CLIENT(write)] == WRITING && CURRENT(CLIENT(write)) == write ->
        printf("    client %d: answer %d (version %d.%d)\n", CLIENT(write), outcome, EPOCH(its_version), SEQ(its_version));
        answer(CLIENT(write), outcome, its_version)
    :: else
    fi
}

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
    :: REQUEST(write) >= session_request[node * 2 + CLIENT(write)] ->
        session_request[node * 2 + CLIENT(write)] = REQUEST(write);
        session_version[node * 2 + CLIENT(write)] = its_version
    :: else
    fi
}

/* ---- WRITE and CAS, unstamped, at the head ---- */

inline on_request(node, write) {
    n = node; w = write; k = config[n]; c = CLIENT(w); q = REQUEST(w);
    newer = q > session_request[n * 2 + c];
    equal = q == session_request[n * 2 + c];
#ifdef NO_SESSION
    newer = 1; equal = 0;
#endif
#ifdef NO_OLD_DROP
    newer = newer || !equal;
#endif
    if
    :: !newer && !equal -> skip                       /* an older request: dropped */
    :: else ->
        if
        :: kind[w] == WRITE -> assigned = newer
#ifdef CAS_AT_LATEST
        :: else -> assigned = latest[n] == expected[w]
#else
        :: else -> assigned = CLEAN(n) && committed[n] == expected[w]
#endif
        fi;
        assigned = assigned && SEQ(latest[n]) < 7;
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
            session_request[n * 2 + c] = q;
            session_version[n * 2 + c] = v;
            printf("node %d (head, config %d): request of write %d gets version %d.%d\n", n, k, w, EPOCH(v), SEQ(v));
#ifdef GUESS
            i = 1;
            do :: i < VALUES -> if :: kind[i] == CAS && expected[i] == v -> expected_value[i] = w :: else fi; i++ :: else -> break od;
#endif
            if
            :: TAIL(k) == n -> committed[n] = v; value[n] = w; tidy(n); answer_write(w, w, v)
            :: else -> newest_value[n] = w; newest_writer[n] = w; d = NEXT(k, n); send(k, v, w, 0, d)
            fi
        :: !assigned && equal && session_version[n * 2 + c] != 0 ->
            v = session_version[n * 2 + c];
            printf("node %d (head, config %d): request of write %d again, keeps version %d.%d\n", n, k, w, EPOCH(v), SEQ(v));
            if
            :: TAIL(k) == n -> answer_write(w, w, v)
            :: else -> d = NEXT(k, n); send(k, v, w, 0, d)
            fi
        :: !assigned && !(equal && session_version[n * 2 + c] != 0) && kind[w] == CAS ->
            if :: newer -> session_request[n * 2 + c] = q; session_version[n * 2 + c] = 0 :: else fi;
            if
#ifdef CAS_AT_LATEST
#define MAY_FAIL 1
#else
#define MAY_FAIL CLEAN(n)
#endif
            :: MAY_FAIL ->
                printf("node %d (head, config %d): CAS %d expects %d.%d, has %d.%d\n", n, k, w, EPOCH(expected[w]), SEQ(expected[w]),
                    EPOCH(committed[n]), SEQ(committed[n]));
                if
#ifdef CAS_FAILED_BY_HEAD
                :: CLEAN(n) -> answer_write(w, value[n], committed[n])
#endif
#ifdef CAS_FAILED_BY_HEAD_WITH_LEASE
                :: CLEAN(n) && lease[n] -> answer_write(w, value[n], committed[n])
#endif
                :: TAIL(k) == n && CLEAN(n) -> answer_write(w, value[n], committed[n])
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
    :: IS_TAIL(n) ->
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
        if :: ok -> skip :: else -> answer_write(w, w, v) fi
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
    commit_news(n, v, x, w)
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
#define SERVES(node) ((MEMBER(node) && LEASE(node) || joining == (node)) && READABLE(node) && PLACED(node))
#else
#define SERVES(node) (MEMBER(node) && LEASE(node) && READABLE(node) && PLACED(node))
#endif
#define NEWEST(node) (CLEAN(node) -> value[node] : newest_value[node])
#if defined(READ_COMMITTED_ANYWHERE) || defined(TAIL_READS_COMMITTED)
#define SERVED(node) value[node]
#define SERVED_VERSION(node) committed[node]
#else
#define SERVED(node) NEWEST(node)
#define SERVED_VERSION(node) latest[node]
#endif

/* ---- Processes ---- */

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
#define WAITS(c) (state[c] == WRITING)
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
    /* A reply with the same version. To a member it is as good as the ACK, since it has seen the WRITE and with it the session; not so to a newcomer. */
    :: d_step { RUNNING && slot < news && joining != NOBODY && L_WRITE(learn[slot]) != 0 -> on_news(joining, (learn[slot] & ~7)); clear() }
    od
}
#endif

/* The reply to some reader, on its way through members. Where the ACK of the same version is out, News does what it can do. */
inline repair(node) {
    n = node;
    ok = 0; i = 0;
    do :: i < news -> if :: L_VERSION(learn[i]) == SERVED_VERSION(n) -> ok = 1 :: else fi; i++ :: else -> break od;
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

#define SERVES_WRITE(node, write) (kind[write] != 0 && IS_HEAD(node) && !frozen[config[node]] && ASKS(node, write) && PLACED(node))
#ifdef QUIET
/* Once; and once more of the head that there is in the end, whose client would not find out which that is but by trying. */
#define ASKS(node, write) ((asked & (1 << write)) == 0 && ((again & (1 << write)) == 0 || HEAD(now_config) == (node)))
#define ASKED(write) asked = asked | (1 << write);
#else
#define ASKS(node, write) true
#define ASKED(write)
#endif

/* Each request that was ever made, at each head. */
proctype Requests(byte write) {
    do
    :: d_step { RUNNING && SERVES_WRITE(0, write) -> ASKED(write) on_request(0, write); clear() }
    :: d_step { RUNNING && SERVES_WRITE(1, write) -> ASKED(write) on_request(1, write); clear() }
    :: d_step { RUNNING && SERVES_WRITE(2, write) -> ASKED(write) on_request(2, write); clear() }
    /* A CAS that the head has found to fail: it passes every member on its way to the tail, which answers it. */
#if defined(NO_EPOCH) || defined(NO_EPOCH_ON_CAS)
#define GETS_FAILING(node) (MEMBER(node) && !frozen[config[node]] && PLACED(node) && (failing[write] & (FAIL_BIT(1, node) | FAIL_BIT(2, node) | FAIL_BIT(3, node))) != 0)
#else
#define GETS_FAILING(node) (MEMBER(node) && !frozen[config[node]] && PLACED(node) && (failing[write] & FAIL_BIT(config[node], node)) != 0)
#endif
#define FAILS(node) (GETS_FAILING(node) && IS_TAIL(node) && CLEAN(node) && committed[node] != expected[write])
#define PASSES(node) (GETS_FAILING(node) && !IS_TAIL(node) && (failing[write] & FAIL_BIT(config[node], NEXT(config[node], node))) == 0)
    :: d_step { RUNNING && FAILS(0) -> printf("node 0: CAS %d fails\n", write); answer_write(write, value[0], committed[0]); clear() }
    :: d_step { RUNNING && FAILS(1) -> printf("node 1: CAS %d fails\n", write); answer_write(write, value[1], committed[1]); clear() }
    :: d_step { RUNNING && FAILS(2) -> printf("node 2: CAS %d fails\n", write); answer_write(write, value[2], committed[2]); clear() }
    :: d_step { RUNNING && PASSES(0) -> k = config[0]; d = NEXT(k, 0); printf("node 0: CAS %d passes\n", write); send_failing(write, k, d); clear() }
    :: d_step { RUNNING && PASSES(1) -> k = config[1]; d = NEXT(k, 1); printf("node 1: CAS %d passes\n", write); send_failing(write, k, d); clear() }
    :: d_step { RUNNING && PASSES(2) -> k = config[2]; d = NEXT(k, 2); printf("node 2: CAS %d passes\n", write); send_failing(write, k, d); clear() }
#ifdef REPAIR_BY_ANY_STATUS
    /* The tail's RETRY to a stamped CAS: the expected version, and the value that the CAS would write. */
#define RETRIES(node) (GETS_FAILING(node) && IS_TAIL(node) && expected[write] != 0 && (!CLEAN(node) || committed[node] == expected[write]))
    :: d_step { RUNNING && RETRIES(0) -> tell(expected[write], write, 0); clear() }
    :: d_step { RUNNING && RETRIES(1) -> tell(expected[write], write, 0); clear() }
    :: d_step { RUNNING && RETRIES(2) -> tell(expected[write], write, 0); clear() }
#endif
    od
}

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
        state[me] == IDLE && requests[me] < WRITES(me) && (PUTS & (1 << me)) != 0 ->
        requests[me]++; state[me] = WRITING;
        kind[CURRENT(me)] = WRITE;
        if :: requests[me] == WRITES(me) -> seen[me] = 0; seen_value[me] = 0 :: else fi;
        printf("client %d: WRITE %d\n", me, CURRENT(me));
        clear()
    }
    :: d_step {
        state[me] == IDLE && requests[me] < WRITES(me) && (CASES & (1 << me)) != 0 ->
        requests[me]++; state[me] = WRITING;
        kind[CURRENT(me)] = CAS; expected[CURRENT(me)] = seen[me]; expected_value[CURRENT(me)] = seen_value[me];
        if :: requests[me] == WRITES(me) -> seen[me] = 0; seen_value[me] = 0 :: else fi;
        printf("client %d: CAS %d, expecting %d.%d\n", me, CURRENT(me), EPOCH(expected[CURRENT(me)]), SEQ(expected[CURRENT(me)]));
        clear()
    }
#ifdef GUESS
    /* A version that it was not told: the next one. */
    :: d_step {
        state[me] == IDLE && requests[me] < WRITES(me) && (CASES & (1 << me)) != 0 && SEQ(latest[0]) < 7 ->
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

/* ---- The controller ---- */

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

inline remove(node) {
    removals++;
    printf("controller: gives node %d up\n", node);
    give_up_joining();
    tmp = members[now_config];
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

inline redrive(node) {
    n = node;
#ifdef QUIET
    driven = driven | (1 << n);
#endif
    printf("controller: drives version %d.%d of node %d down again\n", EPOCH(latest[n]), SEQ(latest[n]), n);
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

#define JOINABLE(node) (joins < JOINS && joining == NOBODY && !IN(now_config, node) && !lease[node] && INSTALLED && !frozen[now_config] && \
                        AT(now_config, 2) == NOBODY && now_config + 2 <= CONFIGS)
inline invite(node) {
    n = node;
    joins++; joining = n;
    latest[n] = 0; committed[n] = 0; newest_value[n] = 0; newest_writer[n] = 0; value[n] = 0;
    session_request[n * 2] = 0; session_request[n * 2 + 1] = 0; session_version[n * 2] = 0; session_version[n * 2 + 1] = 0;
#ifndef JOINS_WITH_OLD_ROLE
    config[n] = 0;
#ifndef EMPTY_GETS_OLD_ROLE
    empty_since[n] = now_config;
#endif
#endif
    printf("controller: node %d comes back, empty\n", n)
}
/* Slots by SYNC (write if newer), then sessions. What was fetched last is put in once or several times, at any later time before the comparison. */
#define DONOR TAIL(now_config)
#ifdef COPY_COMMITTED
#define COPIED_VERSION(d) committed[d]
#define COPIED(d) value[d]
#else
#define COPIED_VERSION(d) latest[d]
#define COPIED(d) NEWEST(d)
#endif
inline fetch() {
    d = DONOR;
    fetched_version = COPIED_VERSION(d); fetched_value = COPIED(d);
    fetched_request[0] = session_request[d * 2]; fetched_request[1] = session_request[d * 2 + 1];
    fetched_given[0] = session_version[d * 2]; fetched_given[1] = session_version[d * 2 + 1];
    printf("controller: fetches from node %d: version %d.%d\n", d, EPOCH(fetched_version), SEQ(fetched_version))
}
inline sync(node) {
    n = node;
    printf("controller: SYNCs node %d with version %d.%d\n", n, EPOCH(fetched_version), SEQ(fetched_version));
    v = fetched_version; x = fetched_value;
#ifdef SYNC_ANYWAY
    committed[n] = v; latest[n] = v; value[n] = x; tidy(n);
#else
    commit_news(n, v, x, 0);
#endif
#ifndef COPY_WITHOUT_SESSIONS
    c = 0;
    do
    :: c < 2 ->
        if
        :: fetched_request[c] >= session_request[n * 2 + c] ->
            session_request[n * 2 + c] = fetched_request[c];
            session_version[n * 2 + c] = fetched_given[c]
        :: else
        fi;
        c++
    :: else -> break
    od;
#endif
    c = 0
}
#define SAME_SESSION(c) (session_request[joining * 2 + c] == session_request[DONOR * 2 + c] && session_version[joining * 2 + c] == session_version[DONOR * 2 + c])
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
#define SAME (committed[joining] == COPIED_VERSION(DONOR) && SAME_SESSIONS)
#endif
/* A SYNC that is late (of a controller that has been replaced, say) can arrive when the newcomer has long been a member. */
#define WOULD_SYNC_SESSION(node, c) (fetched_request[c] >= session_request[(node) * 2 + c] && \
    (fetched_request[c] != session_request[(node) * 2 + c] || fetched_given[c] != session_version[(node) * 2 + c]))
#ifdef SYNC_ANYWAY
#define WOULD_SYNC(node) (fetched_version != 0 && fetched_version != latest[node])
#else
#define WOULD_SYNC(node) (fetched_version != 0 && (fetched_version > committed[node] || WOULD_SYNC_SESSION(node, 0) || WOULD_SYNC_SESSION(node, 1)))
#endif
#define FETCHED_SESSION(c) (fetched_request[c] == session_request[DONOR * 2 + c] && fetched_given[c] == session_version[DONOR * 2 + c])
#define FETCHED_ANY (fetched_version != 0 || fetched_request[0] != 0 || fetched_request[1] != 0)
#define FETCHED (fetched_version == COPIED_VERSION(DONOR) && FETCHED_SESSION(0) && FETCHED_SESSION(1))
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
#if TAKEOVERS > 0
    /* It knows what is in the store, and wants it under an epoch of its own. */
    :: d_step {
        RUNNING && takeovers < TAKEOVERS && now_config < CONFIGS ->
        takeovers++; give_up_joining();
        printf("controller: another takes over\n");
        tmp = members[now_config];
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
#if JOINS > 0
    :: d_step { RUNNING && JOINABLE(0) -> invite(0); clear() }
    :: d_step { RUNNING && JOINABLE(1) -> invite(1); clear() }
    :: d_step { RUNNING && JOINABLE(2) -> invite(2); clear() }
    :: d_step { RUNNING && joining != NOBODY && !FETCHED -> fetch(); clear() }
    :: d_step { RUNNING && joining != NOBODY && FETCHED_ANY && !SAME -> sync(joining); clear() }
#ifndef QUIET
    :: d_step { RUNNING && filled_late != NOBODY && WOULD_SYNC(filled_late) -> sync(filled_late); clear() }
#endif
#ifndef NO_FREEZE
    :: d_step { RUNNING && joining != NOBODY && !frozen[now_config] && INSTALLED -> printf("controller: freeze\n"); tmp = members[now_config]; decide(tmp, 1); clear() }
#endif
    :: d_step {
        RUNNING && joining != NOBODY && STANDS_STILL && INSTALLED && SAME ->
        n = joining; joining = NOBODY; lease[n] = 1; filled_late = n;
        printf("controller: node %d is equal\n", n);
        tmp = members[now_config];
        tmp = WITH(tmp, n);
        decide(tmp, 0);
        clear()
    }
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

init {
    d_step {
        members[0] = 63;
        set_members(1, CHAIN);
#ifdef EPOCHS
        epoch[1] = 1;
#endif
        now_config = 1;
        i = 0;
        do
        :: i < NODES -> if :: IN(1, i) -> config[i] = 1; lease[i] = 1 :: else fi; i++
        :: else -> break
        od;
        past[0] = 1;
    }
    atomic {
        run Client(0); run Client(1);
        i = 1; do :: i < VALUES -> run Requests(i); i++ :: else -> break od;
        i = 0; do :: i < PACKETS -> run Network(i); i++ :: else -> break od;
        i = 0; do :: i < NEWS -> run News(i); i++ :: else -> break od;
#ifdef QUIET
        run Judge();
#endif
#ifdef READERS
        run Reader();
#endif
        run Controller()
    }
}
