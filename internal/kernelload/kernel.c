//go:build ignore

// SPDX-License-Identifier: Apache-2.0
// The load program, which turns each answer into the next query, and the reflector, which stands in
// for a switch.
#include "../bpf/bpf.h"

enum { READ = 1, WRITE = 3, OK = 0 }; // as in package wire

enum { SLOTS = 1024, DRAWN = 1 << 16, TEMPLATE_BYTES = 256 };

// Histograms. Each op has CELLS cells of FINE_STEP nanoseconds, then CELLS cells of COARSE_STEP.
enum { CELLS = 4096, FINE_STEP = 100, COARSE_STEP = 10000 };

// A slot's outstanding query. Numbers are in host byte order.
struct slot {
	__u64 sent; // nanoseconds of the kernel's monotonic clock
	__u32 request, key, op, session;
	__u64 random; // state of the slot's random number generator
	__u64 unused[4];
};

// The memory that the program shares with its process. Arrays by op are in the order READ, WRITE.
struct shared {
	__u64 stop;   // 1: do not send frames on that come back
	__u64 parked; // frames that came back after stop was set
	__u64 stray;  // answers to a query that was answered already, or to none
	__u64 wrong;  // answers with another value or key than the query's
	__u64 unused[4];
	__u64 status[2][32];
	__u8 templates[2][TEMPLATE_BYTES]; // the queries, without the fields that differ
	struct slot slots[SLOTS];
	__u32 draw[DRAWN]; // a uniformly drawn element is the next key
	__u64 histogram[2][2 * CELLS];
} shared;

// The offsets of fields in a frame, in bytes.
struct shape {
	__u32 length; // of the frame
	__u32 covered; // bytes that come from a template
	// 0 as status, query, answer, session or value_length: the frame has no such field. first and
	// last are the value's words.
	__u32 op, status, key, query[2], answer[2], first, last;
	__u32 session, value_length;
	__u32 op_mask, replies[2]; // the bits of the op field, and the op of an answer to a READ and to a WRITE
	__u32 value_bytes;
	__u32 port, first_port, outstanding, write_percent;
	__u32 reflected;
};
const struct shape shape = {};

struct headers {
	__u16 ethernet_dst[3], ethernet_src[3], type;
	__u8 version, tos;
	__u16 length, id, fragment;
	__u8 ttl, protocol;
	__u16 checksum, src[2], dst[2];
	__u16 src_port, dst_port, udp_length, udp_checksum;
};

#define AT(type, offset) (*(type *)(frame + (offset)))
#define COUNT(counter) ((void)__sync_fetch_and_add(&(counter), 1))

static __always_inline __u32 cell(__u64 nanoseconds)
{
	__u64 i = nanoseconds / FINE_STEP;
	if (i >= CELLS) {
		i = CELLS + nanoseconds / COARSE_STEP;
		if (i >= 2 * CELLS)
			i = 2 * CELLS - 1;
	}
	asm volatile("" : "+r"(i)); // the compiler knows that i is in bounds, the verifier does not
	return i & (2 * CELLS - 1);
}

SEC("tc")
int netcraq_load(struct __sk_buff *skb)
{
	const struct shape *s = OPAQUE(&shape);
	char *frame = (char *)(long)skb->data;

	if (frame + s->length > (char *)(long)skb->data_end) {
		bpf_skb_pull_data(skb, s->length);
		frame = (char *)(long)skb->data;
		if (frame + s->length > (char *)(long)skb->data_end)
			return TCX_NEXT;
	}
	// Ignore frames that are not answers to this load's queries.
	struct headers *h = (void *)frame;
	if (h->type != htons(ETH_P_IP) || h->protocol != IPPROTO_UDP || htons(h->src_port) != s->port)
		return TCX_NEXT;
	__u32 n = htons(h->dst_port) - s->first_port;
	if (n >= s->outstanding || n >= SLOTS)
		return TCX_NEXT;
	struct slot *slot = &shared.slots[n];
	__u64 now = bpf_ktime_get_ns();

	// Compare with the outstanding query. The CPU that changes the slot's request number owns the
	// answer.
	__u32 write = slot->op == WRITE;
	const __u32 *numbers = s->reflected ? s->query : s->answer;
	__u32 number = write ? numbers[1] : numbers[0];
	__u32 request = number ? htonl(AT(__u32, number)) : slot->request;
	__u32 op = s->reflected ? slot->op : write ? s->replies[1] : s->replies[0];
	if ((AT(__u8, s->op) & s->op_mask) != op ||
	    (!number && htonl(AT(__u32, s->key)) != slot->key) || // without a number, only the key identifies the answer
	    __sync_val_compare_and_swap(&slot->request, request, request + 1) != request) {
		COUNT(shared.stray);
		return TC_ACT_SHOT;
	}
	COUNT(shared.histogram[write][cell(now - slot->sent)]);

	// Check the answer's status and value.
	if (!s->reflected) {
		__u32 status = s->status ? AT(__u8, s->status) & 31 : OK;
		__u64 value = AT(__u64, s->first);
		COUNT(shared.status[write][status]);
		if (htonl(AT(__u32, s->key)) != slot->key ||
		    (!write && status == OK &&
		     ((s->value_length && htons(AT(__u16, s->value_length)) != s->value_bytes) ||
		      value != AT(__u64, s->last) || htonll(value) >> 32 != slot->key)))
			COUNT(shared.wrong);
	}
	if (*(volatile __u64 *)&shared.stop) {
		COUNT(shared.parked);
		return TC_ACT_SHOT;
	}

	// The next query: xorshift64 (Marsaglia 2003) chooses its op and key.
	__u64 random = slot->random;
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	write = (random >> 40) % 100 < s->write_percent;
	slot->random = random;
	slot->key = shared.draw[random >> 20 & (DRAWN - 1)];
	slot->op = write ? WRITE : READ;
	slot->sent = now;
	request++;

	__u16 port = h->dst_port;
	char *template = (char *)shared.templates[write];
#pragma unroll
	for (__u32 i = 0; i < TEMPLATE_BYTES; i += 8)
		if (i + 8 <= s->covered)
			AT(__u64, i) = *(__u64 *)(template + i);
	if (s->covered & 4)
		AT(__u32, s->covered & ~7) = *(__u32 *)(template + (s->covered & ~7));
	if (s->covered & 2)
		AT(__u16, s->covered & ~3) = *(__u16 *)(template + (s->covered & ~3));
	if (s->covered & 1)
		AT(__u8, s->covered & ~1) = *(__u8 *)(template + (s->covered & ~1));
	h->src_port = port;
	AT(__u32, s->key) = htonl(slot->key);
	number = write ? s->query[1] : s->query[0];
	if (number)
		AT(__u32, number) = htonl(request);
	// The value's first and last word have the key and the request. A READ has neither value nor
	// session.
	__u64 value = write ? htonll((__u64)slot->key << 32 | request) : 0;
	AT(__u64, s->first) = value;
	AT(__u64, s->last) = value;
	if (s->session)
		AT(__u16, s->session) = write ? htons((__u16)slot->session) : 0;
	return bpf_redirect(skb->ifindex, 0);
}

#define SWAP(a, b) ({ __typeof__(a) old = a; a = b; b = old; })

// The least that a switch can do with a query: send it back with its addresses swapped.
static __always_inline int reflect(void *frame, void *end)
{
	struct headers *h = frame;
	if ((void *)(h + 1) > end || h->type != htons(ETH_P_IP) || h->protocol != IPPROTO_UDP)
		return 0;
	for (int i = 0; i < 3; i++)
		SWAP(h->ethernet_dst[i], h->ethernet_src[i]);
	for (int i = 0; i < 2; i++)
		SWAP(h->src[i], h->dst[i]);
	SWAP(h->src_port, h->dst_port);
	return 1;
}

SEC("tc")
int reflect_tc(struct __sk_buff *skb)
{
	if (!reflect((void *)(long)skb->data, (void *)(long)skb->data_end))
		return TCX_NEXT;
	return bpf_redirect(skb->ifindex, 0);
}

SEC("xdp")
int reflect_xdp(struct xdp_md *md)
{
	return reflect((void *)(long)md->data, (void *)(long)md->data_end) ? XDP_TX : XDP_PASS;
}

SEC("xdp")
int pass(struct xdp_md *md __attribute__((unused)))
{
	return XDP_PASS;
}

char _license[] SEC("license") = "GPL";
