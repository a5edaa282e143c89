/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "../../internal/bpf/bpf.h"

enum { UDP_DROP, UDP_PLAIN, UDP_PASS };

/* Rules for UDP packets. Ports are in network byte order; 0 means none. */
struct udp_rules {
	__u16 both;    /* packets from or to this port match */
	__u16 to;      /* packets to this port are dropped; they are never UDP_PLAIN */
	__u8 untagged; /* all tagged frames are dropped, whatever they carry */
};

enum { MAX_TAGS = 4 }; /* tags to search in the frame; a frame with more is dropped */

enum { ETHER_TYPE = 12, TAG_LENGTH = 4, PLAIN_VERSION = 0x45 };
enum { MORE_FRAGMENTS = htons(0x2000), FRAGMENT_OFFSET = htons(0x1fff) };

struct ip_header {
	__u8 version, tos;
	__u16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum, source[2], destination[2];
};

/* Linux removes tags of the first two types, other switches remove all three. */
static __always_inline int is_tag(__u16 type)
{
	return type == htons(ETH_P_8021Q) || type == htons(ETH_P_8021AD) || type == htons(ETH_P_QINQ1);
}

static __always_inline int udp_ports(const struct udp_rules *r, __u16 source, __u16 destination, int named)
{
	if (r->both && (source == r->both || destination == r->both))
		return named;
	return r->to && destination == r->to ? UDP_DROP : UDP_PASS;
}

static __always_inline long load_bytes(void *ctx, int xdp, __u32 offset, void *to, __u32 length)
{
	return xdp ? bpf_xdp_load_bytes(ctx, offset, to, length) : bpf_skb_load_bytes(ctx, offset, to, length);
}

/* For frames with tags, options, fragments, or headers outside the linear part. A frame that ends
 * too early is dropped, because the kernel would not accept it either. */
static __always_inline int udp_thorough(void *ctx, int xdp, const struct udp_rules *r, int tagged)
{
	__u32 at = ETHER_TYPE;
	__u16 type;
	for (;;) {
		if (load_bytes(ctx, xdp, at, &type, sizeof type))
			return UDP_DROP;
		at += sizeof type;
		if (!is_tag(type))
			break;
		if (r->untagged || at > ETHER_TYPE + MAX_TAGS * TAG_LENGTH)
			return UDP_DROP;
		at += sizeof type;
		tagged = 1;
	}
	if (type != htons(ETH_P_IP))
		return UDP_PASS;

	struct ip_header ip;
	if (load_bytes(ctx, xdp, at, &ip, sizeof ip))
		return UDP_DROP;
	if (ip.protocol != IPPROTO_UDP || ip.fragment & FRAGMENT_OFFSET)
		return UDP_PASS;
	/* Drop what is not version 4 with at least 5 words, lest a receiver take it for IPv4. */
	if (ip.version < PLAIN_VERSION || ip.version > 0x4f)
		return UDP_DROP;

	__u16 ports[2];
	if (load_bytes(ctx, xdp, at + (ip.version & 15) * 4, ports, sizeof ports))
		return UDP_DROP;
	int plain = !tagged && !(ip.fragment & MORE_FRAGMENTS) && ip.version == PLAIN_VERSION;
	return udp_ports(r, ports[0], ports[1], plain ? UDP_PLAIN : UDP_DROP);
}

/* Nearly all frames have their headers in the linear part, no tag and no options. A few direct
 * reads decide on those. */
static __always_inline int udpmatch(void *ctx, int xdp, const struct udp_rules *r)
{
	struct __sk_buff *skb = ctx;
	struct xdp_md *md = ctx;
	struct frame {
		__u16 addresses[6], type;
		struct ip_header ip;
		__u16 source, destination, length, checksum;
	} *frame = (void *)(long)(xdp ? md->data : skb->data);
	void *end = (void *)(long)(xdp ? md->data_end : skb->data_end);
	int tagged = !xdp && skb->vlan_present;

	if ((void *)(frame + 1) <= end && !tagged) {
		if (frame->type != htons(ETH_P_IP)) {
			if (!is_tag(frame->type))
				return UDP_PASS;
		} else if (frame->ip.protocol != IPPROTO_UDP) {
			return UDP_PASS;
		} else if (frame->ip.version == PLAIN_VERSION && !(frame->ip.fragment & (MORE_FRAGMENTS | FRAGMENT_OFFSET))) {
			return udp_ports(r, frame->source, frame->destination, UDP_PLAIN);
		}
	}
	if (tagged && r->untagged)
		return UDP_DROP;
	return udp_thorough(ctx, xdp, r, tagged);
}
