/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for the bpf_helpers.h of the kernel's tree that the peers' sources include: only what
 * they need of it, so that no kernel tree is needed to compile them. */
#pragma once

#include <linux/in.h>
#include <linux/pkt_cls.h>
#include <linux/types.h>

typedef __u8 u8, uint8_t;
typedef __u16 u16, uint16_t;
typedef __u32 u32, uint32_t;
typedef __u64 u64, uint64_t;
typedef __s16 int16_t;

#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int(*name)[val]
#define __type(name, val) typeof(val) *name
#define inline inline __attribute__((always_inline))

#define htons(x) __builtin_bswap16(x)
#define ntohs(x) __builtin_bswap16(x)
#define memcpy __builtin_memcpy

struct bpf_map_def {
	__u32 type, key_size, value_size, max_entries, map_flags;
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_tail_call)(void *ctx, void *programs, __u32 index) = (void *)12;
static long (*const bpf_xdp_adjust_head)(struct xdp_md *ctx, int by) = (void *)44;
static long (*const bpf_xdp_adjust_tail)(struct xdp_md *ctx, int by) = (void *)65;
static long (*const bpf_spin_lock)(struct bpf_spin_lock *lock) = (void *)93;
static long (*const bpf_spin_unlock)(struct bpf_spin_lock *lock) = (void *)94;
