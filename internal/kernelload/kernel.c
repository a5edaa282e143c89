//go:build ignore

// SPDX-License-Identifier: Apache-2.0
// The load program, which turns each answer into the next query, and the reflector.
#include "../bpf/bpf.h"

enum { READ = 1, WRITE = 3, OK = 0 }; // of package wire

enum { SLOTS = 1024, DRAWN = 1 << 16, TEMPLATE_BYTES = 256 };

// Histograms: for each op, fine cells of FINE_STEP nanoseconds, then coarse ones.
enum { CELLS = 4096, FINE_STEP = 100, COARSE_STEP = 10000 };

// The query that a slot has on its way. Numbers are in host order.
struct slot {
	__u64 sent; // nanoseconds of the kernel's monotonic clock
	__u32 request, key, op, session;
	__u64 random; // the state of its random numbers
	__u64 unused[4];
};

// What the program shares with the process. Ops are counted READ, WRITE.
struct shared {
	__u64 stop;   // 1: frames that come back are not sent on
	__u64 parked; // frames that came back after that
	__u64 stray;  // answers to a query that had been answered, or to none
	__u64 wrong;  // values or keys that are not what was asked for
	__u64 unused[4];
	__u64 status[2][32];
	__u8 templates[2][TEMPLATE_BYTES]; // the queries without what is different in each
	struct slot slots[SLOTS];
	__u32 draw[DRAWN]; // the next key is one of them, each as likely
	__u64 histogram[2][2 * CELLS];
} shared;

// Where fields are in a frame, in bytes.
struct shape {
	__u32 length; // of the frame
	__u32 covered; // by a template
	// 0: none, of status, query, answer, session and value_length. first and last are the value's words.
	__u32 op, status, key, query[2], answer[2], first, last;
	__u32 session, value_length;
	__u32 op_mask, replies[2]; // the bits that are the op, and the op of an answer to a READ and a WRITE
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
	asm volatile("" : "+r"(i)); // the compiler knows that it is in bounds, the verifier does not
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
	// Is it an answer to one of ours?
	struct headers *h = (void *)frame;
	if (h->type != htons(ETH_P_IP) || h->protocol != IPPROTO_UDP || htons(h->src_port) != s->port)
		return TCX_NEXT;
	__u32 n = htons(h->dst_port) - s->first_port;
	if (n >= s->outstanding || n >= SLOTS)
		return TCX_NEXT;
	struct slot *slot = &shared.slots[n];
	__u64 now = bpf_ktime_get_ns();

	// Of the query that is on its way? Whoever changes the number has the answer.
	__u32 write = slot->op == WRITE;
	const __u32 *numbers = s->reflected ? s->query : s->answer;
	__u32 number = write ? numbers[1] : numbers[0];
	__u32 request = number ? htonl(AT(__u32, number)) : slot->request;
	__u32 op = s->reflected ? slot->op : write ? s->replies[1] : s->replies[0];
	if ((AT(__u8, s->op) & s->op_mask) != op ||
	    (!number && htonl(AT(__u32, s->key)) != slot->key) || // the key is all there is to know it by
	    __sync_val_compare_and_swap(&slot->request, request, request + 1) != request) {
		COUNT(shared.stray);
		return TC_ACT_SHOT;
	}
	COUNT(shared.histogram[write][cell(now - slot->sent)]);

	// What did it say?
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

	// The next query: xorshift64 (Marsaglia 2003) says what and which.
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
	// The value: the key and the request, first and last. A READ has neither that nor a session.
	__u64 value = write ? htonll((__u64)slot->key << 32 | request) : 0;
	AT(__u64, s->first) = value;
	AT(__u64, s->last) = value;
	if (s->session)
		AT(__u16, s->session) = write ? htons((__u16)slot->session) : 0;
	return bpf_redirect(skb->ifindex, 0);
}

#define SWAP(a, b) ({ __typeof__(a) old = a; a = b; b = old; })

// The least that a switch can do with a query: it goes back to where it came from, with the addresses
// swapped.
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
