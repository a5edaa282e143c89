/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of linux/bpf.h, linux/pkt_cls.h and linux/if_ether.h that the C programs need. The
 * kernel never changes them. So compiling needs no Linux headers, and clang's output is the same
 * everywhere. */
#pragma once

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;

#define SEC(name) __attribute__((section(name), used))
#define __always_inline inline __attribute__((always_inline))

/* Hides from the compiler where a pointer points, so the program loads the value at run time. The
 * verifier does know the value, and removes the branches that constants rule out. */
#define OPAQUE(pointer) ({ __typeof__(pointer) p_ = (pointer); asm volatile("" : "+r"(p_)); p_; })

#define htons(x) __builtin_bswap16(x)
#define htonl(x) __builtin_bswap32(x)
#define htonll(x) __builtin_bswap64(x)

struct __sk_buff {
	__u32 len, pkt_type, mark, queue_mapping, protocol, vlan_present, vlan_tci, vlan_proto, priority,
		ingress_ifindex, ifindex, tc_index, cb[5], hash, tc_classid, data, data_end, napi_id, family,
		remote_ip4, local_ip4, remote_ip6[4], local_ip6[4], remote_port, local_port, data_meta;
	__u64 flow_keys, tstamp;
	__u32 wire_len, gso_segs;
	__u64 sk;
	__u32 gso_size;
};

struct xdp_md {
	__u32 data, data_end;
};

enum { TCX_NEXT = -1, TC_ACT_SHOT = 2 };
enum { XDP_DROP = 1, XDP_PASS = 2, XDP_TX = 3 };
enum { ETH_P_IP = 0x0800, ETH_P_8021Q = 0x8100, ETH_P_IPV6 = 0x86dd, ETH_P_8021AD = 0x88a8, ETH_P_QINQ1 = 0x9100 };
enum { IPPROTO_TCP = 6, IPPROTO_UDP = 17, IPPROTO_ICMPV6 = 58, IPPROTO_SCTP = 132 };
enum { /* IPv6's extension headers */
	IPPROTO_HOPOPTS = 0,
	IPPROTO_ROUTING = 43,
	IPPROTO_FRAGMENT = 44,
	IPPROTO_AH = 51,
	IPPROTO_DSTOPTS = 60,
	IPPROTO_MH = 135,
	IPPROTO_HIP = 139,
	IPPROTO_SHIM6 = 140
};

static __u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_redirect)(__u32 ifindex, __u64 flags) = (void *)23;
static long (*const bpf_skb_load_bytes)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)26;
static long (*const bpf_skb_pull_data)(struct __sk_buff *skb, __u32 len) = (void *)39;
static long (*const bpf_xdp_load_bytes)(struct xdp_md *xdp, __u32 offset, void *to, __u32 len) = (void *)189;
