// SPDX-License-Identifier: Apache-2.0
// Rates of what switches count, from one look at the counters to the next.
import { ask } from "./dom.js";

// What of a switch's events (p4src/include/events.p4) is what; each packet is one of them.
const kinds = {
  reads: ["read_clean", "read_dirty", "read_not_found"], // answered here
  forwarded: ["read_forwarded"],
  writes: ["write_assigned", "write_stored", "write_committed"], // versions that are new here
  committed: ["write_committed"],
};
const refused = ["not_serving", "no_chain", "bad_session", "write_not_found", "write_frozen", "write_full", "denied", "outdated"];

// Rates has the rates of each switch, and in each those of its chains.
export class Rates {
  constructor() {
    this.before = new Map(); // by switch: time and values of its last counters
    this.rates = new Map();
  }

  // ask looks at the counters of some switches; those that do not answer have no rates.
  async ask(names) {
    const answers = await Promise.allSettled(names.map((n) => ask(`/v1/switches/${encodeURIComponent(n)}/counters?slots=0`)));
    const time = performance.now() / 1000, rates = new Map(), seen = new Map();
    names.forEach((name, i) => {
      if (answers[i].status !== "fulfilled") return;
      const now = { time, events: answers[i].value.events || {}, chains: answers[i].value.chains || [] };
      seen.set(name, now);
      if (this.before.has(name)) rates.set(name, between(this.before.get(name), now));
    });
    this.before = seen;
    this.rates = rates;
  }

  // total is a rate over all switches; undefined: none is known.
  total(kind) {
    const known = [...this.rates.values()].map((r) => r[kind]).filter((v) => v !== undefined);
    return known.length ? known.reduce((a, b) => a + b, 0) : undefined;
  }
}

function between(a, b) {
  const time = b.time - a.time;
  // A switch that was started again counts from 0: what it does a second is not known then.
  const per = (x, y) => (y >= x && time > 0 ? (y - x) / time : undefined);
  const sum = (events, names) => names.reduce((n, name) => n + (events[name] || 0), 0);
  const drops = (events) => Object.keys(events).filter((n) => n.startsWith("drop_"));
  const out = { chains: new Map() };
  for (const [kind, names] of Object.entries(kinds)) out[kind] = per(sum(a.events, names), sum(b.events, names));
  out.refused = per(sum(a.events, refused), sum(b.events, refused));
  out.dropped = per(sum(a.events, drops(a.events)), sum(b.events, drops(b.events)));
  for (const c of b.chains) {
    const was = a.chains.find((o) => o.id === c.id);
    if (was) out.chains.set(c.id, { reads: per(was.reads, c.reads), writes: per(was.writes, c.writes) });
  }
  return out;
}
