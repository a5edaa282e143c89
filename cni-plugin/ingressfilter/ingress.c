//go:build ignore

// SPDX-License-Identifier: Apache-2.0
#include "udp6match.h"

const struct udp_rules rules = {};
const struct ip4_rules ip4 = {};
const struct ip6_rules ip6 = {};

/* The bit of the mark of frames from the switch. netcraq_egress passes them without a check. */
const __u32 switch_mark = 0;

static __always_inline int judge(struct __sk_buff *skb)
{
	if (udpmatch(skb, 0, OPAQUE(&rules)) != UDP_PASS)
		return TC_ACT_SHOT;
	/* Untagged IPv4 is the most frequent case, and needs no search for tags. */
	__u16 type = htons(ETH_P_IP);
	void *end = (void *)(long)skb->data_end;
	__u8 *frame = (void *)(long)skb->data;
	int verdict;
	if ((void *)(frame + ETHER_TYPE + sizeof type) <= end && *(__u16 *)(frame + ETHER_TYPE) == type)
		verdict = ip4match(skb, OPAQUE(&ip4), ETHER_TYPE + sizeof type);
	else
		verdict = udp6match(skb, OPAQUE(&rules), OPAQUE(&ip4), OPAQUE(&ip6));
	return verdict == UDP_PASS ? TCX_NEXT : TC_ACT_SHOT;
}

SEC("tc")
int netcraq_ingress(struct __sk_buff *skb)
{
	return judge(skb);
}

/* For frames that leave by an interface, towards a pod. */
SEC("tc")
int netcraq_egress(struct __sk_buff *skb)
{
	return skb->mark & *(const __u32 *)OPAQUE(&switch_mark) ? TCX_NEXT : judge(skb);
}

SEC("tc")
int drop_everything(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Apache-2.0";
