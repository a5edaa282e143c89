/* SPDX-License-Identifier: Apache-2.0
 *
 * The values of the chip's program, a register for each word, or for each two where an access may
 * return two (TWO_RESULTS).
 */
#ifndef NETCRAQ_CHIP_OBJECTS_P4
#define NETCRAQ_CHIP_OBJECTS_P4

#include "metadata.p4"

control ChipObjects(inout headers_t hdr, inout chip_metadata_t meta) {
    CHIP_REGISTER(bit<16>, cell_t, CELLS) objects_length;
    STATEFUL(read_length, objects_length, bit<16>, cell_t, bit<16>, hdr.netcraq.length, meta.cell, , rv = v;)
    STATEFUL_WRITE(fill_length, objects_length, bit<16>, cell_t, meta.cell, v = hdr.netcraq.length;)
    @hidden table length {
        key = { meta.cell_op: exact; }
        actions = { read_length; fill_length; NoAction; }
        const entries = {
            CELL_READ: read_length();
            CELL_FILL: fill_length();
        }
        const default_action = NoAction();
    }

#ifdef TWO_RESULTS
#define CELL_REGISTER(A, B) \
    Register<pair_t, cell_t>(CELLS) objects_store_##A; \
    RegisterAction2<pair_t, cell_t, bit<32>, bit<32>>(objects_store_##A) read_##A##_access = { \
        void apply(inout pair_t v, out bit<32> first, out bit<32> second) { first = v.low; second = v.high; } \
    }; \
    @hidden action read_##A() { hdr.value.word_##A = read_##A##_access.execute(meta.cell, hdr.value.word_##B); } \
    STATEFUL_WRITE(fill_##A, objects_store_##A, pair_t, cell_t, meta.cell, \
                   v.low = hdr.value.word_##A; v.high = hdr.value.word_##B;) \
    CELL_TABLE(A)
#define CELL_APPLY(A, B) value_##A.apply();
#else
#define CELL_REGISTER(A) \
    CHIP_REGISTER(bit<32>, cell_t, CELLS) objects_store_##A; \
    STATEFUL(read_##A, objects_store_##A, bit<32>, cell_t, bit<32>, hdr.value.word_##A, meta.cell, , rv = v;) \
    STATEFUL_WRITE(fill_##A, objects_store_##A, bit<32>, cell_t, meta.cell, v = hdr.value.word_##A;) \
    CELL_TABLE(A)
#define CELL_APPLY(A) value_##A.apply();
#endif
#define CELL_TABLE(A) \
    @hidden table value_##A { \
        key = { meta.cell_op: exact; } \
        actions = { read_##A; fill_##A; NoAction; } \
        const entries = { \
            CELL_READ: read_##A(); \
            CELL_FILL: fill_##A(); \
        } \
        const default_action = NoAction(); \
    }
#ifdef TWO_RESULTS
#define EACH_CELL EACH_PAIR
#else
#define EACH_CELL EACH_WORD
#endif
    EACH_CELL(CELL_REGISTER)

    apply {
        length.apply();
        EACH_CELL(CELL_APPLY)
    }
}

#endif
