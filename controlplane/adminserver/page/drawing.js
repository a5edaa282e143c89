// SPDX-License-Identifier: Apache-2.0
// The drawing of the network: switches, the links between them, and the chains over them, with what
// each does a second.
import { at, brief, el, rate, set, svg } from "./dom.js";

const box = { w: 152, h: 68 }; // with a line for one role; there may be two
const line = 17;
const gap = { x: 56, y: 62 };
const colours = 6; // classes c0 to c5

// layout gives each switch a place for a width, by what the links look like: those that stand in a
// line in rows, back and forth; spines above leaves; others on an ellipse.
function layout(names, links, withHosts, width) {
  const next = new Map(names.map((n) => [n, new Set()]));
  for (const [a, b] of links) {
    next.get(a).add(b);
    next.get(b).add(a);
  }
  const line = inLine(names, next);
  if (line) return inRows(line, width, true);
  const leaves = names.filter((n) => withHosts.has(n)), spines = names.filter((n) => !withHosts.has(n));
  const apart = (set) => set.every((a) => set.every((b) => !next.get(a).has(b)));
  if (leaves.length && spines.length && apart(leaves) && apart(spines)) {
    const above = inRows(spines, width, false), below = inRows(leaves, width, false);
    for (const [n, p] of below.places) above.places.set(n, { x: p.x, y: p.y + above.height + 10 });
    return { places: above.places, height: above.height + below.height + 10 };
  }
  return around(names, width);
}

// inLine orders switches that stand in one line; undefined: they do not.
function inLine(names, next) {
  const ends = names.filter((n) => next.get(n).size <= 1);
  if (names.length > 2 && (ends.length !== 2 || names.some((n) => next.get(n).size > 2))) return undefined;
  const order = [];
  for (let n = ends[0]; n !== undefined && !order.includes(n); n = [...next.get(n)].find((m) => !order.includes(m))) order.push(n);
  return order.length === names.length ? order : undefined;
}

function inRows(order, width, snake) {
  const per = Math.max(1, Math.min(order.length, Math.floor((width + gap.x) / (box.w + gap.x))));
  const step = per > 1 ? Math.min(box.w + 2 * gap.x, (width - box.w) / (per - 1)) : 0;
  const places = new Map();
  order.forEach((n, i) => {
    const row = Math.floor(i / per), inRow = Math.min(per, order.length - row * per);
    const column = snake && row % 2 ? per - 1 - (i % per) : i % per;
    const left = snake ? (width - step * (per - 1)) / 2 : (width - step * (inRow - 1)) / 2;
    places.set(n, { x: left + column * step, y: box.h / 2 + 8 + row * (box.h + gap.y) });
  });
  return { places, height: Math.ceil(order.length / per) * (box.h + gap.y) - gap.y + 16 };
}

function around(names, width) {
  const rx = Math.min(360, (width - box.w) / 2), ry = Math.max(box.h + 24, names.length * (rx < 200 ? 40 : 26));
  const places = new Map(names.map((n, i) => {
    const angle = (2 * Math.PI * i) / names.length - Math.PI / 2;
    return [n, { x: width / 2 + rx * Math.cos(angle), y: ry + box.h / 2 + 8 + ry * Math.sin(angle) }];
  }));
  return { places, height: 2 * ry + box.h + 16 };
}

const short = (name, most) => (name.length > most ? name.slice(0, most - 1) + "…" : name);

// Drawing is the drawing, which is made again only when the network or the width changes; otherwise
// only its numbers change, so that the focus stays where it is.
export class Drawing {
  constructor() {
    this.shape = "";
    this.nodes = new Map();
    this.arrows = [];
    this.chosen = undefined; // the switch whose details are shown
    new ResizeObserver(() => this.show()).observe(at("network"));
  }

  // update takes what the API says, and rates by switch.
  update(chains, switches, rates) {
    Object.assign(this, { chains, switches, rates });
    this.show();
  }

  show() {
    if (!this.switches) return;
    at("network-section").hidden = !this.switches.length; // before it is measured
    const width = at("network").clientWidth;
    if (!width) return;
    const links = [], hosts = new Map();
    const known = new Set(this.switches.map((s) => s.name));
    for (const s of this.switches) {
      for (const p of s.ports || []) {
        const [, to] = /^switch (.+) port \d+$/.exec(p.leadsTo) || [];
        if (known.has(to) && s.name !== to && !links.some(([a, b]) => (a === s.name && b === to) || (a === to && b === s.name))) links.push([s.name, to]);
        const [, host] = /^host (.+)$/.exec(p.leadsTo) || [];
        if (host) hosts.set(s.name, [...(hosts.get(s.name) || []), host]);
      }
    }
    this.hosts = hosts;
    const shape = JSON.stringify([width, [...known], links, [...hosts.keys()], this.chains.map((c) => [c.name, (c.members || []).map((m) => m.switch)])]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.draw(width, links, hosts);
    }
    this.numbers();
  }

  draw(width, links, hosts) {
    const focused = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.switch : undefined;
    const names = this.switches.map((s) => s.name);
    this.lines = Math.max(1, Math.min(2, Math.max(...names.map((n) => this.partsOf(n).length))));
    box.h = 51 + line * this.lines;
    const { places, height } = layout(names, links, hosts, width);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "group", "aria-label": "Switches, links and chains" });
    for (const [a, b] of links) {
      const p = places.get(a), q = places.get(b);
      root.append(svg("line", { class: "link", x1: p.x, y1: p.y, x2: q.x, y2: q.y }, svg("title", null, `${a} and ${b} are linked`)));
    }
    this.arrows = [];
    this.chains.forEach((c, index) => {
      const members = (c.members || []).filter((m) => places.has(m.switch));
      for (let i = 1; i < members.length; i++) root.append(this.arrow(c, index, members[i - 1].switch, members[i].switch, places));
    });
    this.nodes = new Map();
    for (const s of this.switches) root.append(this.node(s, places.get(s.name)));
    at("network").replaceChildren(root);
    at("legend").replaceChildren(...this.chains.map((c, i) => el("span", { class: "chain-name c" + (i % colours) }, c.name)));
    if (this.nodes.has(focused)) this.nodes.get(focused).g.focus();
  }

  // arrow is a chain's way from a member to the next, which its writes take.
  arrow(chain, index, from, to, places) {
    const p = places.get(from), q = places.get(to), length = Math.hypot(q.x - p.x, q.y - p.y) || 1;
    // Chains keep to their side of a link, whichever way they go along it.
    const off = 12 + 14 * Math.floor(index / 2), side = (index % 2 ? -1 : 1) * (from < to ? 1 : -1);
    const n = { x: (-(q.y - p.y) / length) * off * side, y: ((q.x - p.x) / length) * off * side };
    const middle = { x: (p.x + q.x) / 2 + n.x, y: (p.y + q.y) / 2 + n.y };
    const way = svg("path", { class: "chain-way", d: `M${p.x + n.x} ${p.y + n.y} L${q.x + n.x} ${q.y + n.y}` });
    const turn = (Math.atan2(q.y - p.y, q.x - p.x) * 180) / Math.PI;
    const head = svg("path", { class: "chain-head", d: "M-5 -5 L6 0 L-5 5 Z", transform: `translate(${middle.x} ${middle.y}) rotate(${turn})` });
    const beside = Math.abs(q.x - p.x) < Math.abs(q.y - p.y);
    const label = svg("text", beside ? { x: middle.x + (n.x >= 0 ? 10 : -10), y: middle.y + 4, "text-anchor": n.x >= 0 ? "start" : "end" } : { x: middle.x, y: middle.y + (n.y >= 0 ? 18 : -10), "text-anchor": "middle" });
    this.arrows.push({ chain, to, label });
    return svg("g", { class: "c" + (index % colours) }, way, head, label);
  }

  node(s, p) {
    const g = svg("g", { class: "switch", tabindex: "0", role: "img", transform: `translate(${p.x - box.w / 2} ${p.y - box.h / 2})`, "data-switch": s.name });
    const title = svg("title", null), roles = svg("text", { x: 12, y: 39 }), numbers = svg("text", { x: 12, y: box.h - 11, class: "numbers" }), state = svg("text", { x: box.w - 10, y: 21, "text-anchor": "end", class: "state" });
    g.append(title, svg("rect", { width: box.w, height: box.h, rx: 6 }), svg("rect", { class: "side", width: 5, height: box.h, rx: 2 }),
      svg("text", { x: 12, y: 21, class: "name" }, short(s.name, 14)), state, roles, numbers);
    const choose = () => { this.chosen = s.name; this.tell(); };
    g.addEventListener("focus", choose);
    g.addEventListener("mouseenter", choose);
    // The arrows lead from one to the next, as Tab does.
    g.addEventListener("keydown", (e) => {
      const all = [...this.nodes.keys()], by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[e.key];
      if (!by) return;
      e.preventDefault();
      this.nodes.get(all[(all.indexOf(s.name) + by + all.length) % all.length]).g.focus();
    });
    this.nodes.set(s.name, { g, title, roles, numbers, state });
    return g;
  }

  // partsOf are a switch's parts in chains.
  partsOf(name) {
    const out = [];
    this.chains.forEach((c, index) => (c.members || []).forEach((m) => { if (m.switch === name) out.push({ chain: c, index, member: m }); }));
    return out;
  }

  numbers() {
    for (const s of this.switches) {
      const n = this.nodes.get(s.name);
      if (!n) continue;
      const parts = this.partsOf(s.name), r = this.rates.get(s.name) || {};
      const wrong = !s.connected ? "not connected" : !s.ready ? "not ready" : parts.some((p) => !p.member.ready) ? "not installed" : parts.some((p) => !p.member.leaseLive) ? "no lease" : "";
      n.g.setAttribute("class", wrong ? "switch out" : "switch");
      set(n.state, wrong);
      const shown = parts.slice(0, 2).map((p, i) => svg("tspan", { class: "role c" + (p.index % colours), x: 12, dy: i * line }, (this.chains.length > 1 ? short(p.chain.name, 10) + " " : "") + p.member.role.replace("_", " ")));
      if (parts.length > 2) shown.push(svg("tspan", { class: "faint" }, " +" + (parts.length - 2)));
      if (!parts.length) shown.push(svg("tspan", { class: "faint" }, "in no chain"));
      n.roles.replaceChildren(...shown);
      set(n.numbers, r.reads === undefined ? "" : `${brief(r.reads)} reads/s, ${brief(r.writes)} w/s`);
      n.g.setAttribute("aria-label", this.sentence(s));
      set(n.title, this.sentence(s));
    }
    for (const a of this.arrows) {
      const c = (this.rates.get(a.to) || {}).chains;
      set(a.label, c && c.has(a.chain.id) ? brief(c.get(a.chain.id).writes) + " w/s" : "");
    }
    this.tell();
  }

  // sentence is all of a switch in words, for those who do not see the drawing.
  sentence(s) {
    const r = this.rates.get(s.name) || {};
    const parts = this.partsOf(s.name).map((p) => `${p.member.role.replace("_", " ")} of ${p.chain.name}${p.member.ready ? "" : ", not ready"}${p.member.leaseLive ? "" : ", without a lease"}`);
    const hosts = (this.hosts.get(s.name) || []).length;
    return `${s.name}: ${s.connected ? (s.ready ? "ready" : "not ready") : "not connected"}; ${parts.join("; ") || "in no chain"}; ` +
      `a second: ${rate(r.reads)} reads answered, ${rate(r.forwarded)} forwarded to the tail, ${rate(r.writes)} writes taken, ${rate(r.refused)} refused, ${rate(r.dropped)} dropped; ` +
      `${hosts} ${hosts === 1 ? "host" : "hosts"}` + (s.lastError ? `; last error: ${s.lastError}` : "");
  }

  tell() {
    const s = this.switches.find((one) => one.name === this.chosen);
    set(at("told"), s ? this.sentence(s) : "Point at a switch, or go to it by Tab, for all about it.");
  }
}
