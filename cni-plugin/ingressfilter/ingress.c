//go:build ignore

// SPDX-License-Identifier: Apache-2.0
#include "../../switch/udpmatch/udpmatch.h"

const struct udp_rules rules = {};

SEC("tc")
int netcraq_ingress(struct __sk_buff *skb)
{
	return udpmatch(skb, 0, OPAQUE(&rules)) == UDP_PASS ? TCX_NEXT : TC_ACT_SHOT;
}

SEC("tc")
int drop_everything(struct __sk_buff *skb __attribute__((unused)))
{
	return TC_ACT_SHOT;
}

char _license[] SEC("license") = "Apache-2.0";
