/* SPDX-License-Identifier: Apache-2.0
 *
 * The PSA form of what the shared controls use: registers, counters, meters. arch_v1model.p4 has
 * the form for v1model.
 */
#ifndef NETCRAQ_ARCH_P4
#define NETCRAQ_ARCH_P4

#include <core.p4>
#include <bmv2/psa.p4>

#define REGISTER(TYPE, SIZE) Register<TYPE, bit<32>>(SIZE)
#define REGISTER_READ(REG, DST, INDEX) DST = REG.read(INDEX)
#define COUNTER(SIZE) Counter<bit<64>, bit<32>>(SIZE, PSA_CounterType_t.PACKETS)
#define COUNT(CTR, INDEX) CTR.count(INDEX)
#define METER(SIZE) Meter<bit<9>>(SIZE, PSA_MeterType_t.PACKETS)
#define METER_EXCEEDED(METER, INDEX, EXCEEDED) \
    { EXCEEDED = METER.execute(INDEX) == PSA_MeterColor_t.RED; }
/* PSA verifies a checksum in the parser. A wrong checksum becomes the packet's parser error. */
error { BadIPv4Checksum }
#define PARSER_VERIFY_IPV4(IPV4) \
        ipv4_checksum.clear(); \
        ipv4_checksum.add({ IPV4.version, IPV4.ihl, IPV4.tos, IPV4.total_length, IPV4.identification, IPV4.flags, \
                            IPV4.fragment_offset, IPV4.ttl, IPV4.protocol, IPV4.src, IPV4.dst }); \
        verify(ipv4_checksum.get() == IPV4.checksum, error.BadIPv4Checksum);
#define PARSER_SUM_IPV4(IPV4)
#define CPU_PORT 510
/* Two limits of p4c 1.2.4's PSA back end: if a table's key is a slice of a field, it uses the whole
 * field, and it omits the fields of user metadata unless they are in a header. */
#define CHAIN_OF(KEY) (bit<8>)(KEY >> 24)
#define METADATA header
#define METADATA_PADDING bit<3> padding;
#define NETCRAQ_BRIDGE

#endif
