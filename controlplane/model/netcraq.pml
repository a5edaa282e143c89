/* SPDX-License-Identifier: Apache-2.0
 *
 * NetCRAQ's protocol (docs/protocol.md) for one key, to be searched exhaustively by Spin. README.md says what is modelled and how, what is left out and why
 * that is sound, and what came of it. check.py runs it; each configuration and each mutant is a set of -D.
 *
 *   Client x 2 ──requests──▶ Network ──▶ nodes 0, 1, 2 (registers, one configuration each) ◀── Controller (epochs, leases, recovery, sessions)
 *       │                       ▲
 *       │                       └── first switch ◀── Hostile: another host, with whatever it likes
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
#define REDRIVE_FROM 1         /* the first configuration in which what is dirty is re-propagated */
#endif
#ifndef FORGERIES
#define FORGERIES 0            /* requests of a hostile host */
#endif
#ifndef FIRST
#define FIRST 0                /* the key is being added (keys.pml): attempts of the controller's first write */
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
#define ALL (VALUES + FORGERIES + FIRST)    /* from VALUES on: what the hostile host wrote, or the controller's first write */
#define SESSIONS (2 + FIRST)
#if 1 + WRITES0 + WRITES1 + FORGERIES + FIRST > 8
#error packets have three bits for the number of a write
#endif
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
#if MOVES > 0 || FIRST > 0
#define PLACES
byte unplaced;                       /* bit n: node n has no key_index entry for the key */
#endif
byte config[NODES];                  /* 0: no role */
byte latest[NODES], committed[NODES];
byte newest_value[NODES];            /* the dirty cell that `latest` names, and who wrote it; both 0 while clean, when cell 0 is read */
byte newest_writer[NODES];
byte value[NODES];                   /* cell 0 */
byte session_request[NODES * SESSIONS];     /* by node and session; authority.pml says whose that is */
byte session_version[NODES * SESSIONS];
byte empty_since[NODES];             /* it is empty, or was filled, since this configuration: it gets no part in one up to that */
bit lease[NODES];                    /* it may be live: whether it is, each step decides anew. 0: it is over for certain */

#define CLEAN(n) (latest[n] == committed[n])
#ifdef PLACES
#define PLACED(n) ((unplaced & (1 << (n))) == 0)
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
byte driven;                         /* bit n: node n's newest was re-propagated in this configuration */
bit calm;                            /* from now on nothing is lost, and the chain does not change */
bit judged;
byte again;                          /* bit w: its client has asked once more, when all was at rest */
#endif
short failing[VALUES];               /* stamped CASes on their way to the tail, by write: bit 3 (k-1) + n: of configuration k, to node n */
#define FAIL_BIT(k, n) (1 << (3 * ((k) - 1) + (n)))

/* ---- Clients. Every request that was ever made can arrive anywhere at any time. ---- */
byte state[2];
byte requests[2], reads[2];          /* how many were made */
byte kind[ALL];                      /* of each write: 0 not made yet, WRITE, CAS */
byte expected[ALL];                  /* of a CAS, the version ... */
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
byte filled_late = NOBODY;           /* the joiner once it is a member */
#ifdef PASSED
bit looked;                          /* something was fetched since writes pass the joiner */
#endif
#endif
byte joining = NOBODY;               /* a spare that is being filled; the one thing that is in the memory of a controller, and is lost with it */
#define INSTALLED (config[HEAD(now_config)] == now_config && config[TAIL(now_config)] == now_config && \
                   (AT(now_config, 1) == NOBODY || config[AT(now_config, 1)] == now_config))

#define DONE (state[0] == IDLE && state[1] == IDLE && (requests[0] == WRITES0 || !HOLDS(0)) && requests[1] == WRITES1 && reads[0] == READS0 && reads[1] == READS1)

/* Scratch of a step: set before it is read. It is no part of the state; Spin's breadth-first search, which cannot leave it out, gets it cleared instead. */
#ifdef BREADTH_FIRST
#define SCRATCH
inline clear() {
    n = 0; c = 0; q = 0; k = 0; v = 0; w = 0; x = 0; i = 0; j = 0; tmp = 0; cur = 0; d = 0; key = 0; newer = 0; equal = 0; assigned = 0; filled = 0; ok = 0; settled = 0; answered = 0; concealed = 0; once = 0;
    do :: i <= VALUES -> after[i] = 0; i++ :: else -> break od;
    i = 0
}
#else
#define SCRATCH hidden
inline clear() { skip }
#endif
SCRATCH byte n, c, q, k, v, w, x, i, j, tmp, cur, d;
SCRATCH short key;
SCRATCH byte newer, equal, assigned, filled, ok, settled, answered, concealed, once;
SCRATCH byte after[VALUES + 1];

#include "authority.pml"
#include "keys.pml"
#include "monitor.pml"
#include "switch.pml"
#include "world.pml"
#if FORGERIES > 0
#include "hostile.pml"
#endif
#include "controller.pml"

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
        :: i < NODES -> if :: IN(1, i) -> config[i] = 1; lease[i] = 1; session_request[i * SESSIONS] = EARLIER :: else fi; i++
        :: else -> break
        od;
        past[0] = 1;
#if FIRST > 0
        begin_addition();
#endif
#ifdef GROWS
        begin_growth();
#endif
    }
    atomic {
        run Client(0); run Client(1);
#if FORGERIES > 0
        run Hostile(0); run Hostile(1); run Hostile(NO_SESSION_ID);
        i = 0; do :: i < FORGERIES -> run Forged(i); i++ :: else -> break od;
#endif
        i = 1; do :: i < VALUES -> run Requests(i); i++ :: else -> break od;
#if FIRST > 0
        i = 0; do :: i < FIRST -> run First(i); i++ :: else -> break od;
#endif
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
