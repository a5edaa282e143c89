/* SPDX-License-Identifier: Apache-2.0
 *
 * How v1model writes what the chip's controls (chip/) use, so that the project's engines and BMv2
 * run the chip's tables, entries and register accesses. (arch_tna.p4 is its twin, and explains each
 * macro.)
 */
#ifndef NETCRAQ_ARCH_P4
#define NETCRAQ_ARCH_P4

#include <core.p4>
#include <v1model.p4>

#define CPU_PORT 510
#define NETCRAQ_CHIP
#define METADATA struct
#define METADATA_PADDING
#define PARSER_VERIFY_IPV4(IPV4)
#define PARSER_SUM_IPV4(IPV4)

#define COUNTER(SIZE) counter(SIZE, CounterType.packets)
#define COUNT(CTR, INDEX) CTR.count((bit<32>)INDEX)
#define SLOT_COUNTER(NAME) counter(SLOTS, CounterType.packets) NAME
#define COUNT_SLOT(CTR) CTR.count((bit<32>)meta.slot)
#define METER(SIZE) meter(SIZE, MeterType.packets)
#define METER_COLOUR(METER, INDEX, COLOUR) METER.execute_meter<bit<2>>((bit<32>)INDEX, COLOUR)
typedef bit<2> colour_t;
const colour_t RED = 2;

#define CHIP_REGISTER(TYPE, INDEX, SIZE) register<TYPE>(SIZE)
#define STATEFUL(ACTION, REG, TYPE, INDEX_TYPE, RESULT_TYPE, RESULT, INDEX, THEN, ...) \
    @hidden action ACTION() { \
        TYPE v; \
        RESULT_TYPE rv; \
        REG.read(v, (bit<32>)INDEX); \
        __VA_ARGS__ \
        REG.write((bit<32>)INDEX, v); \
        RESULT = rv; \
        THEN \
    }
#define STATEFUL_WRITE(ACTION, REG, TYPE, INDEX_TYPE, INDEX, ...) \
    @hidden action ACTION() { \
        TYPE v; \
        REG.read(v, (bit<32>)INDEX); \
        __VA_ARGS__ \
        REG.write((bit<32>)INDEX, v); \
    }
#define PREDICATE(FIRST, SECOND) ((FIRST) ? ((SECOND) ? 8w8 : 8w2) : ((SECOND) ? 8w4 : 8w1))
#define MAXIMUM(A, B) ((A) > (B) ? (A) : (B))
typedef bit<64> pair_t;
#define LOW(PAIR) PAIR[31:0]
#define HIGH(PAIR) PAIR[63:32]

typedef bit<16> MulticastGroupId_t;
#define TRAFFIC_PARAMETERS inout traffic_t traffic
#define TRAFFIC traffic
#define TM_PORT traffic.egress_port
#define TM_GROUP traffic.multicast_group
#define TM_DROP traffic.drop
#define TM_DROPPED 1w1
#define TM_RESUBMIT traffic.resubmit
#define TM_RESUBMITTED 1w1
typedef bit<1> drop_t;
struct traffic_t {
    bit<9>  egress_port;
    bit<16> multicast_group;
    bit<1>  drop;
    bit<1>  resubmit;
}

#endif
