//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#include "../../internal/bpf/bpf.h"

enum { ETHER_TYPE = 12, MAX_TAGS = 4, MAX_EXTENSIONS = 6 };
enum { MORE_FRAGMENTS_OR_OFFSET = 0x3fff };

/* Offsets of the checksum in TCP (RFC 9293), UDP (RFC 768) and SCTP (RFC 9260), in bytes. */
enum { TCP_CHECKSUM = 16, UDP_CHECKSUM = 6, SCTP_CHECKSUM = 8 };

struct ip4 {
	__u8 version, tos;
	__u16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__u32 source, destination;
};

struct ip6 {
	__u32 version_class_label;
	__u16 length;
	__u8 next, hop_limit;
	__u8 addresses[32];
};

/* The fields of the kernel's own sk_buff (include/linux/skbuff.h) that this program reads. The
 * loader takes their offsets from the running kernel's BTF. */
struct sk_buff {
	__u8 ip_summed : 2;
	__u16 csum_start;  /* from head */
	__u16 csum_offset; /* from csum_start */
	unsigned char *head, *data;
} __attribute__((preserve_access_index));

enum { CHECKSUM_PARTIAL = 3 };

/* Since Linux 6.2. Only programs with a GPL-compatible licence may call it. */
extern void *bpf_cast_to_kern_ctx(void *) __attribute__((section(".ksyms")));

enum { BYTE_OFFSET = 0, BYTE_SIZE = 1, SHIFT_LEFT = 4, SHIFT_RIGHT = 5 }; /* libbpf's BPF_FIELD_... */

static __always_inline int summed(struct sk_buff *skb)
{
	void *at = (void *)skb + __builtin_preserve_field_info(skb->ip_summed, BYTE_OFFSET);
	__u64 v;
	switch (__builtin_preserve_field_info(skb->ip_summed, BYTE_SIZE)) {
	case 1:
		v = *(__u8 *)at;
		break;
	case 2:
		v = *(__u16 *)at;
		break;
	default:
		v = *(__u32 *)at;
	}
	v <<= __builtin_preserve_field_info(skb->ip_summed, SHIFT_LEFT);
	return v >> __builtin_preserve_field_info(skb->ip_summed, SHIFT_RIGHT);
}

/* justified returns whether a frame's headers justify what its metadata requests. If partial is 1,
 * the kernel will compute a checksum over the bytes from start and write it at start + offset.
 * Lengths and offsets are in bytes from the beginning of the Ethernet header. */
static __always_inline int justified(struct __sk_buff *skb, int partial, __u32 start, __u32 offset)
{
	__u32 split = skb->gso_size;
	if (!partial && !split)
		return 1;

	__u32 at = ETHER_TYPE;
	__u16 type;
	for (int tags = 0;; tags++) {
		if (bpf_skb_load_bytes(skb, at, &type, sizeof type))
			return 0;
		at += sizeof type;
		if (type != htons(ETH_P_8021Q) && type != htons(ETH_P_8021AD) && type != htons(ETH_P_QINQ1))
			break;
		if (tags == MAX_TAGS)
			return 0;
		at += sizeof type;
	}

	__u8 protocol;
	__u32 end; /* of the packet, by its IP header; 0: the header has no length, as in a packet over 64 KiB */
	if (type == htons(ETH_P_IP)) {
		struct ip4 ip;
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof ip) || ip.version < 0x45 || ip.version > 0x4f)
			return 0;
		if (ip.fragment & htons(MORE_FRAGMENTS_OR_OFFSET))
			return 0; /* the kernel can neither finish a checksum nor split in a fragment */
		protocol = ip.protocol;
		end = ip.length ? at + htons(ip.length) : 0;
		at += (ip.version & 15) * 4;
	} else if (type == htons(ETH_P_IPV6)) {
		struct ip6 ip;
		if (bpf_skb_load_bytes(skb, at, &ip, sizeof ip))
			return 0;
		protocol = ip.next;
		at += sizeof ip;
		end = ip.length ? at + htons(ip.length) : 0;
		for (int i = 0; i < MAX_EXTENSIONS; i++) {
			struct {
				__u8 next, length;
			} extension;
			if (protocol != IPPROTO_HOPOPTS && protocol != IPPROTO_ROUTING && protocol != IPPROTO_DSTOPTS)
				break;
			if (bpf_skb_load_bytes(skb, at, &extension, sizeof extension))
				return 0;
			protocol = extension.next;
			at += (extension.length + 1) * 8;
		}
	} else {
		return 0;
	}

	__u32 checksum;
	switch (protocol) {
	case IPPROTO_TCP:
		checksum = TCP_CHECKSUM;
		break;
	case IPPROTO_UDP:
		checksum = UDP_CHECKSUM;
		break;
	case IPPROTO_SCTP:
		checksum = SCTP_CHECKSUM;
		break;
	default:
		return 0;
	}
	if (partial && (start != at || offset != checksum))
		return 0;
	if (!split)
		return 1;
	/* Each segment gets the whole frame's headers. A TCP frame may be longer than its headers can
	 * say. */
	if (!end)
		return protocol == IPPROTO_TCP;
	if (end != skb->len)
		return 0;
	if (protocol == IPPROTO_UDP) {
		__u16 length;
		if (bpf_skb_load_bytes(skb, at + 4, &length, sizeof length) || htons(length) != end - at)
			return 0;
	}
	return 1;
}

SEC("tc")
int netcraq_frames(struct __sk_buff *skb)
{
	struct sk_buff *kernels = bpf_cast_to_kern_ctx(skb);
	int partial = summed(kernels) == CHECKSUM_PARTIAL;
	__u32 start = kernels->csum_start - (__u32)(kernels->data - kernels->head);
	return justified(skb, partial, start, kernels->csum_offset) ? TCX_NEXT : TC_ACT_SHOT;
}

char _license[] SEC("license") = "Dual BSD/GPL";
