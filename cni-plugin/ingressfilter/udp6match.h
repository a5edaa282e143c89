/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "../../switch/udpmatch/udpmatch.h"

enum { SOURCES = 4, MAX_EXTENSIONS = 8, ETH_P_ARP = 0x0806 };

struct ip6_address {
	__u32 word[4];
};

/* The IPv6 packets that are dropped, in addition to those that udp_rules drops. */
struct ip6_rules {
	__u8 checked; /* a source is dropped unless it is among the first `count`, or unspecified */
	__u8 guest;   /* messages that only routers may send are dropped: RFC 4861, sections 4.2 and 4.5 */
	__u8 count;
	struct ip6_address sources[SOURCES];
};

/* The IPv4 packets and ARP messages that are dropped, in addition. */
struct ip4_rules {
	__u8 checked; /* a source, also of an ARP message, is dropped unless it is among the first `count` */
	__u8 guest;   /* packets to or from 127.0.0.0/8 are dropped */
	__u8 count;
	__u32 sources[SOURCES]; /* in network byte order */
	/* Packets from these prefixes are dropped. An element with mask 0 is unused. */
	struct ip4_prefix {
		__u32 address, mask;
	} not_from[SOURCES];
};

enum { ROUTER_ADVERTISEMENT = 134, REDIRECT = 137 };

struct ip6_header {
	__u32 version_class_label;
	__u16 length;
	__u8 next, hop_limit;
	struct ip6_address source, destination;
};

/* The source of an interface that has no address yet (RFC 4862, section 5.4.2). */
static __always_inline int unspecified(const struct ip6_address *a)
{
	return !(a->word[0] | a->word[1] | a->word[2] | a->word[3]);
}

static __always_inline int of_the_loopback(const __u16 *address)
{
	return (address[0] & htons(0xff00)) == htons(0x7f00);
}

static __always_inline int one_of(const struct ip4_rules *r, __u32 source)
{
	for (int i = 0; i < SOURCES; i++)
		if (i < r->count && source == r->sources[i])
			return 1;
	return 0;
}

/* ip4match decides on an IPv4 packet by its addresses. */
static __always_inline int ip4match(struct __sk_buff *skb, const struct ip4_rules *r, __u32 at)
{
	struct ip_header ip;
	if (!r->checked && !r->guest && !r->not_from[0].mask)
		return UDP_PASS;
	if (bpf_skb_load_bytes(skb, at, &ip, sizeof ip))
		return UDP_DROP;
	__u32 source = ip.source[0] | (__u32)ip.source[1] << 16;
	for (int i = 0; i < SOURCES; i++)
		if (r->not_from[i].mask && (source & r->not_from[i].mask) == r->not_from[i].address)
			return UDP_DROP;
	if (r->guest && (of_the_loopback(ip.source) || of_the_loopback(ip.destination)))
		return UDP_DROP;
	if (!r->checked)
		return UDP_PASS;
	return one_of(r, source) ? UDP_PASS : UDP_DROP;
}

/* An ARP message for IPv4 over Ethernet (RFC 826), without the target's addresses. */
struct arp {
	__u16 hardware, protocol;
	__u8 hardware_length, protocol_length;
	__u16 operation;
	__u8 sender[6];
	__u16 address[2];
} __attribute__((packed));

/* arpmatch drops an ARP message whose sender is not the pod's, because the stack remembers each
 * sender. A probe has the sender 0.0.0.0 (RFC 5227), which the stack does not remember. */
static __always_inline int arpmatch(struct __sk_buff *skb, const struct ip4_rules *r, __u32 at)
{
	struct arp m;
	if (!r->checked)
		return UDP_PASS;
	if (bpf_skb_load_bytes(skb, at, &m, sizeof m))
		return UDP_DROP;
	if (m.hardware != htons(1) || m.protocol != htons(ETH_P_IP) || m.hardware_length != 6 || m.protocol_length != 4)
		return UDP_DROP;
	__u32 sender = m.address[0] | (__u32)m.address[1] << 16;
	return !sender || one_of(r, sender) ? UDP_PASS : UDP_DROP;
}

static __always_inline int forged(const struct ip6_rules *r, const struct ip6_address *a)
{
	if (!r->checked || unspecified(a))
		return 0;
	for (int i = 0; i < SOURCES; i++) {
		const struct ip6_address *s = &r->sources[i];
		if (i < r->count && a->word[0] == s->word[0] && a->word[1] == s->word[1] && a->word[2] == s->word[2] &&
		    a->word[3] == s->word[3])
			return 0;
	}
	return 1;
}

/* udp6match decides on a frame that udpmatch has passed. It applies the UDP rules to UDP over IPv6,
 * with or without tags, extension headers and fragments, and the address rules to all other frames.
 * No IPv6 packet is UDP_PLAIN, because the switch's program does not parse IPv6. Later fragments
 * need no check, because Linux accepts neither a first fragment that ends before the UDP header
 * (RFC 8200, section 4.5) nor overlapping ones. */
static __always_inline int udp6match(struct __sk_buff *skb, const struct udp_rules *r, const struct ip4_rules *four,
				     const struct ip6_rules *six)
{
	__u32 at = ETHER_TYPE;
	__u16 type;
	for (int tags = 0;; tags++) {
		if (bpf_skb_load_bytes(skb, at, &type, sizeof type))
			return UDP_DROP;
		at += sizeof type;
		if (!is_tag(type))
			break;
		if (tags == MAX_TAGS)
			return UDP_DROP;
		at += sizeof type;
	}
	if (type == htons(ETH_P_IP))
		return ip4match(skb, four, at);
	if (type == htons(ETH_P_ARP))
		return arpmatch(skb, four, at);
	if (type != htons(ETH_P_IPV6))
		return UDP_PASS;

	struct ip6_header ip;
	if (bpf_skb_load_bytes(skb, at, &ip, sizeof ip) || forged(six, &ip.source))
		return UDP_DROP;
	at += sizeof ip;
	__u8 next = ip.next;
	for (int i = 0; i < MAX_EXTENSIONS; i++) {
		struct {
			__u8 next, length;
			__u16 fragment;
		} extension;
		switch (next) {
		case IPPROTO_UDP:;
			__u16 ports[2];
			if (bpf_skb_load_bytes(skb, at, ports, sizeof ports))
				return UDP_DROP;
			return udp_ports(r, ports[0], ports[1], UDP_DROP);
		case IPPROTO_ICMPV6:;
			__u8 kind;
			if (bpf_skb_load_bytes(skb, at, &kind, sizeof kind))
				return UDP_DROP;
			return six->guest && (kind == ROUTER_ADVERTISEMENT || kind == REDIRECT) ? UDP_DROP : UDP_PASS;
		case IPPROTO_HOPOPTS:
		case IPPROTO_ROUTING:
		case IPPROTO_DSTOPTS:
		case IPPROTO_FRAGMENT:
		case IPPROTO_AH:
		case IPPROTO_MH:
		case IPPROTO_HIP:
		case IPPROTO_SHIM6:
			break;
		default:
			return UDP_PASS;
		}
		if (bpf_skb_load_bytes(skb, at, &extension, sizeof extension))
			return UDP_DROP;
		if (next == IPPROTO_FRAGMENT) {
			if (extension.fragment & htons(0xfff8))
				return UDP_PASS;
			at += 8;
		} else if (next == IPPROTO_AH) {
			at += (extension.length + 2) * 4;
		} else {
			at += (extension.length + 1) * 8;
		}
		next = extension.next;
	}
	return UDP_DROP;
}
