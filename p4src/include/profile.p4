/* SPDX-License-Identifier: Apache-2.0
 *
 * The compile-time profile: the width of a value and the sizes of the registers.
 *
 *   -D VALUE_BITS=128 | 1024 | 4096 | 8192     width of the value field (default 128, the paper's)
 *   -D SLOTS=n                                 key slots
 *   -D DIRTY_BITS=k                            2^k dirty cells per slot (default 2: four cells)
 *   -D SESSIONS=n                              writer sessions (at most 65,536)
 *   -D PAPER_WRITE_BOUND                       refuse writes of a key while all its dirty cells are used
 *
 * p4c refuses fields over 2,048 bits, so the wide profiles divide a value into several words
 * (VALUE, VALUE_1, ...). Each word has its own register, as a chip would spread them over stages.
 */
#ifndef NETCRAQ_PROFILE_P4
#define NETCRAQ_PROFILE_P4

#ifndef VALUE_BITS
#define VALUE_BITS 128
#endif

/* The version and the value in the headers. A chip has both in words of 32 bits. */
#ifdef NETCRAQ_CHIP
#include "chip/profile.p4"
#else
#define VERSION_FIELDS bit<64> version;
#define VALUE_FIELDS bit<WORD_BITS> VALUE;
#endif

#ifdef NETCRAQ_CHIP
#define VALUE_WORDS 1
#elif VALUE_BITS == 128
#define VALUE_WORDS 1
#define WORD_BITS 128
#define DEFAULT_SLOTS 65536
#elif VALUE_BITS == 1024
#define VALUE_WORDS 1
#define WORD_BITS 1024
#define DEFAULT_SLOTS 16384
#elif VALUE_BITS == 4096
#define VALUE_WORDS 2
#define WORD_BITS 2048
#define DEFAULT_SLOTS 8192
#elif VALUE_BITS == 8192
#define VALUE_WORDS 4
#define WORD_BITS 2048
#define DEFAULT_SLOTS 8192
#else
#error "VALUE_BITS must be 128, 1024, 4096 or 8192"
#endif

#ifndef SLOTS
#define SLOTS DEFAULT_SLOTS
#endif
#ifndef DIRTY_BITS
#define DIRTY_BITS 2
#endif
#ifndef SESSIONS
#define SESSIONS 4096
#endif

#define VALUE_BYTES (VALUE_BITS / 8)
#define DIRTY_CELLS (1 << DIRTY_BITS)
#define OBJECT_CELLS (SLOTS * (DIRTY_CELLS + 1))

/* Makes the string of an @entry_restriction or @action_restriction, with the profile's numbers
 * filled in. */
#define TEXT(...) #__VA_ARGS__
#define TEXT_OF(...) TEXT(__VA_ARGS__)

/* The UDP length: the UDP header (8), the NetCRAQ header (24) and the value. */
#define NETCRAQ_UDP_LENGTH (8 + 24 + VALUE_BYTES)

#endif
