/* SPDX-License-Identifier: Apache-2.0 */

/* ---- The monitor: exact linearizability of a register with CAS.
 *
 * The outcome of an operation is the register's value right after it: of a WRITE its own, of a READ what it found, of a CAS its own or what it found. A possible past is the
 * register's value and the outcomes of the operations that have taken effect and are not answered yet. Taking effect can be put off until right before the next answer, of
 * whichever operation; so after an answer only the other client's operation can have taken effect, and past[o] is the set of register values (bit x: x) with its outcome
 * o-1 (o = 0: not yet). An answer that fits none of them is a violation. ---- */
byte past[VALUES + 1];
bit other;                           /* whose outcome past[] is about */
byte executed;                       /* bit w: a tail has answered CAS w with OK */
#define EFFECT(c, cur) (state[c] == READING -> (cur) : \
    (kind[CURRENT(c)] == WRITE || expected_value[CURRENT(c)] == (cur) -> CURRENT(c) : (cur)))

inline answer(client, outcome, its_version) {
    c = client; x = OUTCOME(outcome); d = 1 - c;
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
    :: !FOREIGN(write) && state[CLIENT(write)] == WRITING && CURRENT(CLIENT(write)) == write ->
        printf("    client %d: answer %d (version %d.%d)\n", CLIENT(write), outcome, EPOCH(its_version), SEQ(its_version));
        answer(CLIENT(write), outcome, its_version)
    :: else
    fi
}

/* The first answer to a request may be lost, and the client gets another. To a CAS that two answers can differ: nobody may say that it has failed after a tail has said that it
 * was executed. */
inline answer_done(write, its_version) {
    if :: kind[write] == CAS -> executed = executed | (1 << (write)) :: else fi;
    answer_write(write, write, its_version)
}
inline answer_failed(write, outcome, its_version) {
    once = (executed & (1 << (write))) == 0 && (outcome) != (write);
    if :: !once -> printf("    VIOLATION: CAS %d was executed, and is said to have failed\n", write) :: else fi;
    assert(once);
    answer_write(write, outcome, its_version)
}
