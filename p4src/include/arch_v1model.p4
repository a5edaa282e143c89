/* SPDX-License-Identifier: Apache-2.0
 * The v1model form of what the shared controls use: registers, counters, meters. arch_psa.p4 has
 * the form for PSA.
 */
#ifndef NETCRAQ_ARCH_P4
#define NETCRAQ_ARCH_P4

#include <core.p4>
#include <v1model.p4>

#define REGISTER(TYPE, SIZE) register<TYPE>(SIZE)
#define REGISTER_READ(REG, DST, INDEX) REG.read(DST, INDEX)
#define COUNTER(SIZE) counter(SIZE, CounterType.packets)
#define COUNT(CTR, INDEX) CTR.count(INDEX)
#define METER(SIZE) meter(SIZE, MeterType.packets)
/* Sets EXCEEDED to true if one more packet would exceed the meter's peak rate. */
#define METER_EXCEEDED(METER, INDEX, EXCEEDED) \
    { bit<2> colour = 0; METER.execute_meter<bit<2>>((bit<32>)INDEX, colour); EXCEEDED = colour == 2; }
/* v1model verifies checksums in a separate control. */
#define PARSER_VERIFY_IPV4(IPV4)
#define PARSER_SUM_IPV4(IPV4)
#define CPU_PORT 510
/* The chain of a key, for use as a table's key. */
#define CHAIN_OF(KEY) KEY[31:24]
#define METADATA struct
#define METADATA_PADDING

#endif
