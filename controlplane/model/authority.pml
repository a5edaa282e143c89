/* SPDX-License-Identifier: Apache-2.0
 *
 * Whose a request is, and which request it is: principals, sessions, and a session that changes hands (docs/protocol.md).
 */

/* ---- Requests of the hostile host (hostile.pml) ----
 * The network has them as it has others': each can arrive at any head, any number of times. Bits of forged[f]: */
#define F_SESSION 3                  /* a client's session, or ... */
#define NO_SESSION_ID SESSIONS             /* ... none. (Its own is as good: nobody else uses it.) */
#define F_NUMBER 12                  /* the session's first request after `EARLIER`, the one after that, or the largest that there is */
#define F_NEXT 4
#define F_AFTER 8
#define F_LARGEST 12
#define F_OTHER_KEY 16               /* for a key of another realm, in which it may write; else the clients' */
#define F_AS_CLIENT 32               /* the principal that the request has in the network is the clients', and not its own */
#define F_READ 64
#define F_ARRIVED 128                /* (QUIET: each arrives once) */
#if FORGERIES > 0
byte forged[FORGERIES];              /* 0: not sent yet */
byte forgeries;
#define FOREIGN(w) ((w) >= VALUES)   /* not a client's */
#define ITS(w, bits) ((forged[(w) - VALUES] & (bits)) != 0)
#define OTHER_KEY(w) (FOREIGN(w) && (forged[(w) - VALUES] & F_OTHER_KEY) != 0)
#define ITS_SESSION(w) (forged[(w) - VALUES] & F_SESSION)
#define ITS_NUMBER(w) ((forged[(w) - VALUES] & F_NUMBER) == F_LARGEST -> LARGEST : EARLIER + ((forged[(w) - VALUES] & F_NUMBER) >> 2))
#define SESSION(w) (FOREIGN(w) -> ITS_SESSION(w) : SESSION_OF(CLIENT(w)))
#define NUMBER(w) (FOREIGN(w) -> ITS_NUMBER(w) : NUMBER_OF(w))
#elif FIRST > 0
#define FOREIGN(w) ((w) >= VALUES)   /* the controller's first write; each attempt has a session of its pool */
#define OTHER_KEY(w) false
#define SESSION(w) (FOREIGN(w) -> 2 + (w) - VALUES : SESSION_OF(CLIENT(w)))
#define NUMBER(w) (FOREIGN(w) -> 1 : NUMBER_OF(w))
#else
#define FOREIGN(w) false
#define OTHER_KEY(w) false
#define SESSION(w) SESSION_OF(CLIENT(w))
#define NUMBER(w) NUMBER_OF(w)
#endif

/* ---- Sessions ----
 * One for each client. With LEASED there is one in all, number 0, which is leased anew to client 1 at some moment: before, it is client 0's; or, if that writes nothing, the
 * hostile host's. Numbers of the two leases are farther from each other than the window, below or above. */
#ifdef LEASED
#define WINDOW 2                     /* at least as many as a client makes */
#define EARLIER 8                    /* the first lease's requests come after this; the second's after LOWER or HIGHER, which the controller draws */
#define LOWER 4
#define HIGHER 14
#define LARGEST 31
byte leasing;                        /* 0: the first holder has it; 1: its record begins anew; 2: client 1 has it */
byte anew;                           /* bit n: node n's record has begun anew */
byte behind;                         /* LOWER or HIGHER, once it is drawn */
#define SESSION_OF(c) 0
#define NUMBER_OF(w) (REQUEST(w) + (CLIENT(w) -> behind : EARLIER))
#define HOLDS(c) ((c) -> leasing == 2 : leasing == 0)
#ifdef NO_WINDOW
#define FAR(recorded, number) false
#else
#define FAR(recorded, number) ((recorded) != 0 && (number) - (recorded) > WINDOW)
#endif
#else
#define EARLIER 0
#define LARGEST 31
#define SESSION_OF(c) (c)
#define NUMBER_OF(w) REQUEST(w)
#define HOLDS(c) true
#define FAR(recorded, number) false
#endif
#define NEWER(recorded, number) ((number) > (recorded) && !FAR(recorded, number))
#define TAKES(recorded, number) ((number) == (recorded) || NEWER(recorded, number))

#ifdef LEASED
#define LEARNER(node) (IN(now_config, node) || joining == (node))
#define IS_ANEW(node) (!LEARNER(node) || (anew & (1 << (node))) != 0)
inline lease_anew(number) {
    leasing = 1; behind = number;
    printf("controller: leases session 0 anew, from request %d on\n", behind + 1)
}
inline begin_anew(node) {
    anew = anew | (1 << (node));
#ifndef RECORD_STAYS
    if
    :: session_request[(node) * SESSIONS] >= behind && session_request[(node) * SESSIONS] <= behind + WINDOW -> skip     /* it has: another copy of this word */
    :: else -> session_request[(node) * SESSIONS] = behind; session_version[(node) * SESSIONS] = 0
    fi;
#endif
    printf("node %d: its record of session 0 is request %d\n", node, session_request[(node) * SESSIONS])
}
#endif
