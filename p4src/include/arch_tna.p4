/* SPDX-License-Identifier: Apache-2.0
 *
 * How the Tofino Native Architecture writes what the chip's controls (chip/) use: registers,
 * counters, meters, and the fields that tell the traffic manager what to do. T2NA differs in the
 * number of the CPU port and in how much a register returns.
 */
#ifndef NETCRAQ_ARCH_P4
#define NETCRAQ_ARCH_P4

#include <core.p4>
#if __TARGET_TOFINO__ >= 2
#include <t2na.p4>
#define CPU_PORT 2
#define TWO_RESULTS
#else
#include <tna.p4>
#define CPU_PORT 64
#endif

#define NETCRAQ_CHIP
#define NETCRAQ_BRIDGE
#define METADATA struct
#define METADATA_PADDING
/* The parser sums the header up where it extracts it. */
#define PARSER_SUM_IPV4(IPV4) ipv4_checksum.add(IPV4);
#define PARSER_VERIFY_IPV4(IPV4) meta.checksum_error = (bit<1>)ipv4_checksum.verify();

#define COUNTER(SIZE) Counter<bit<32>, bit<8>>(SIZE, CounterType_t.PACKETS)
#define COUNT(CTR, INDEX) CTR.count(INDEX)
#define SLOT_COUNTER(NAME) Counter<bit<32>, slot_t>(SLOTS, CounterType_t.PACKETS) NAME
#define COUNT_SLOT(CTR) CTR.count(meta.slot)
#define METER(SIZE) Meter<bit<9>>(SIZE, MeterType_t.PACKETS)
#define METER_COLOUR(METER, INDEX, COLOUR) COLOUR = METER.execute(INDEX)
typedef bit<8> colour_t;
const colour_t RED = 3;

#define CHIP_REGISTER(TYPE, INDEX, SIZE) Register<TYPE, INDEX>(SIZE)
/* A register's access as an action: BODY changes the cell `v` and says the result `rv`, which
 * becomes RESULT. THEN is what the action does besides. */
#define STATEFUL(ACTION, REG, TYPE, INDEX_TYPE, RESULT_TYPE, RESULT, INDEX, THEN, ...) \
    RegisterAction<TYPE, INDEX_TYPE, RESULT_TYPE>(REG) ACTION##_access = { \
        void apply(inout TYPE v, out RESULT_TYPE rv) { __VA_ARGS__ } \
    }; \
    @hidden action ACTION() { RESULT = ACTION##_access.execute(INDEX); THEN }
/* The same without a result. */
#define STATEFUL_WRITE(ACTION, REG, TYPE, INDEX_TYPE, INDEX, ...) \
    RegisterAction<TYPE, INDEX_TYPE, bit<32>>(REG) ACTION##_access = { \
        void apply(inout TYPE v) { __VA_ARGS__ } \
    }; \
    @hidden action ACTION() { ACTION##_access.execute(INDEX); }
/* The outcome of a register's two comparisons, as one bit of four: 1 neither, 2 the first, 4 the
 * second, 8 both. */
#define PREDICATE(FIRST, SECOND) this.predicate(FIRST, SECOND)
#define MAXIMUM(A, B) max(A, B)
/* Two words of 32 bits in a register. */
struct pair_t {
    bit<32> low;
    bit<32> high;
}
#define LOW(PAIR) PAIR.low
#define HIGH(PAIR) PAIR.high

/* What the traffic manager is told: fields of the chip's own metadata, which the controls that use
 * them take as parameters. */
#define TRAFFIC_PARAMETERS inout ingress_intrinsic_metadata_for_tm_t tm, \
    inout ingress_intrinsic_metadata_for_deparser_t dprsr
#define TRAFFIC tm, dprsr
#define TM_PORT tm.ucast_egress_port
#define TM_GROUP tm.mcast_grp_a
#define TM_DROP dprsr.drop_ctl
#define TM_DROPPED 3w1
#define TM_RESUBMIT dprsr.resubmit_type
#define TM_RESUBMITTED 3w1
typedef bit<3> drop_t;

#endif
