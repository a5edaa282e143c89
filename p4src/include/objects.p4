/* SPDX-License-Identifier: Apache-2.0
 *
 * The values. The cells of a slot are adjacent in objects_store; objects_length has the number of
 * bytes used in each cell.
 *
 *      slot s:  │ committed │ dirty 0 │ dirty 1 │ ... │   1 + 2^DIRTY_BITS cells
 *                 cell 0      cell 1 + (sequence mod 2^DIRTY_BITS)
 *
 * A packet uses one cell. It either reads the cell into its value field or writes its value field
 * into the cell. Only the newest dirty version is ever read, so a new version may overwrite the
 * oldest dirty cell.
 */
#ifndef NETCRAQ_OBJECTS_P4
#define NETCRAQ_OBJECTS_P4

#include "headers.p4"
#include "events.p4"

control Objects(inout headers_t hdr, inout metadata_t meta) {
    @id(0x1619EA0E) REGISTER(bit<16>, OBJECT_CELLS) objects_length;
    @id(0x16AE1C66) REGISTER(bit<WORD_BITS>, OBJECT_CELLS) objects_store;
#if VALUE_WORDS > 1
    @id(0x16E22418) REGISTER(bit<WORD_BITS>, OBJECT_CELLS) objects_store_1;
#endif
#if VALUE_WORDS > 2
    @id(0x16888964) REGISTER(bit<WORD_BITS>, OBJECT_CELLS) objects_store_2;
    @id(0x16B7EDC3) REGISTER(bit<WORD_BITS>, OBJECT_CELLS) objects_store_3;
#endif

    bit<32> index;

    @hidden action read() {
        REGISTER_READ(objects_length, hdr.netcraq.length, index);
        REGISTER_READ(objects_store, hdr.value.VALUE, index);
#if VALUE_WORDS > 1
        REGISTER_READ(objects_store_1, hdr.value.VALUE_1, index);
#endif
#if VALUE_WORDS > 2
        REGISTER_READ(objects_store_2, hdr.value.VALUE_2, index);
        REGISTER_READ(objects_store_3, hdr.value.VALUE_3, index);
#endif
    }
    @hidden action fill() {
        objects_length.write(index, hdr.netcraq.length);
        objects_store.write(index, hdr.value.VALUE);
#if VALUE_WORDS > 1
        objects_store_1.write(index, hdr.value.VALUE_1);
#endif
#if VALUE_WORDS > 2
        objects_store_2.write(index, hdr.value.VALUE_2);
        objects_store_3.write(index, hdr.value.VALUE_3);
#endif
    }

    apply {
        if (meta.object.used) {
            /* slot * (2^DIRTY_BITS + 1) + cell, with shifts and additions only */
            index = (meta.slot << DIRTY_BITS) + meta.slot + meta.object.cell;
            if (meta.object.fill) {
                fill();
            } else {
                read();
                /* A slot that was never written has no value, and neither has a deleted one. */
                if (hdr.netcraq.version == 0 || hdr.netcraq.length == TOMBSTONE) {
                    hdr.netcraq.length = TOMBSTONE;
                    if (meta.chain_op == chain_op_t.READ) {
                        meta.decision.status = STATUS_NOT_FOUND;
                        meta.decision.event = EVENT_READ_NOT_FOUND;
                    }
                }
            }
        }
    }
}

#endif
