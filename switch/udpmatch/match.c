//go:build ignore

// SPDX-License-Identifier: Apache-2.0
#include "udpmatch.h"

SEC("tc")
int match_tc(struct __sk_buff *skb, __u32 both, __u32 to, __u32 untagged)
{
	struct udp_rules r = {.both = both, .to = to, .untagged = untagged};
	return udpmatch(skb, 0, &r);
}

SEC("xdp")
int match_xdp(struct xdp_md *md, __u32 both, __u32 to, __u32 untagged)
{
	struct udp_rules r = {.both = both, .to = to, .untagged = untagged};
	return udpmatch(md, 1, &r);
}
