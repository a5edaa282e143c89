/* SPDX-License-Identifier: Apache-2.0
 *
 * The compile-time profile of a chip's program:
 *
 *   -D VALUE_BITS=128 | 256 | 512 | 1024       width of the value field
 *   -D SLOT_BITS=n                             2^n key slots (default 14)
 *   -D DIRTY_BITS=0 | 2                        one dirty cell a slot, or four (default)
 *   -D SESSIONS=4096                           writer sessions
 */
#ifndef NETCRAQ_CHIP_PROFILE_P4
#define NETCRAQ_CHIP_PROFILE_P4

#define WORDS_OF_128(M) M(0) M(1) M(2) M(3)
#define WORDS_OF_256(M) WORDS_OF_128(M) M(4) M(5) M(6) M(7)
#define WORDS_OF_512(M) WORDS_OF_256(M) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15)
#define WORDS_OF_1024(M) WORDS_OF_512(M) M(16) M(17) M(18) M(19) M(20) M(21) \
    M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)
#define PAIRS_OF_128(M) M(0, 1) M(2, 3)
#define PAIRS_OF_256(M) PAIRS_OF_128(M) M(4, 5) M(6, 7)
#define PAIRS_OF_512(M) PAIRS_OF_256(M) M(8, 9) M(10, 11) M(12, 13) M(14, 15)
#define PAIRS_OF_1024(M) PAIRS_OF_512(M) M(16, 17) M(18, 19) M(20, 21) \
    M(22, 23) M(24, 25) M(26, 27) M(28, 29) M(30, 31)

/* EACH_WORD(M) expands M for the number of each word of 32 bits of the value, and EACH_PAIR(M) for
 * the numbers of each two words side by side. */
#if VALUE_BITS == 128
#define EACH_WORD(M) WORDS_OF_128(M)
#define EACH_PAIR(M) PAIRS_OF_128(M)
#elif VALUE_BITS == 256
#define EACH_WORD(M) WORDS_OF_256(M)
#define EACH_PAIR(M) PAIRS_OF_256(M)
#elif VALUE_BITS == 512
#define EACH_WORD(M) WORDS_OF_512(M)
#define EACH_PAIR(M) PAIRS_OF_512(M)
#elif VALUE_BITS == 1024
#define EACH_WORD(M) WORDS_OF_1024(M)
#define EACH_PAIR(M) PAIRS_OF_1024(M)
#else
#error "VALUE_BITS of a chip's program must be 128, 256, 512 or 1024"
#endif

/* The version's high half is 0; its low half is epoch (8) and sequence (24). */
#define VERSION_FIELDS bit<32> version_high; bit<32> version;
#define VALUE_FIELD(N) bit<32> word_##N;
#define VALUE_FIELDS EACH_WORD(VALUE_FIELD)

#ifndef SLOT_BITS
#define SLOT_BITS 14
#endif
#define DEFAULT_SLOTS (1 << SLOT_BITS)

#endif
