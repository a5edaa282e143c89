// SPDX-License-Identifier: Apache-2.0
// The page asks the admin API once a second, what switches count every other second, and follows
// the events. While it is not seen it asks nothing.
import { ask, at, clock, el, micros, rate } from "./dom.js";
import { Drawing } from "./drawing.js";
import { rows } from "./keys.js";
import { Plot } from "./plots.js";
import { Rates } from "./rates.js";

const keysShown = 200;

function showChains(chains) {
  at("chains").replaceChildren(...chains.map((c) => {
    const members = (c.members || []).map((m) => el("div", { class: m.ready && m.leaseLive ? "member" : "member out", title: m.address },
      m.switch, el("small", null, m.role + (m.ready ? "" : ", not ready") + (m.leaseLive ? "" : ", no lease"))));
    const name = el("div", { class: "name" }, el("b", null, c.name), ` epoch ${c.epoch}, ${c.keys} of ${c.slots} slots`);
    const row = el("div", { class: "chain" }, name, ...members);
    if (!c.ready) row.append(el("span", { class: "reason" }, c.reason || "not ready"));
    for (const m of c.missing || []) row.append(el("div", { class: "member out", title: m.why }, m.switch, el("small", null, "missing")));
    if (c.length > members.length) {
      const why = (c.missing || []).map((m) => `${m.switch}: ${m.why}`).join("; ");
      row.append(el("span", { class: "reason" }, `short: ${members.length} of ${c.length} members${why && "; " + why}`));
    }
    if (c.frozen) row.append(el("span", { class: "reason" }, "frozen"));
    return row;
  }));
}

function figure(name, value) {
  return el("div", { "data-figure": name }, el("b", null, value), el("span", null, name));
}

function reads(k, most) {
  const cell = el("td", { class: "n reads", "data-label": "reads/s" });
  if (k.reads !== undefined) cell.append(el("meter", { max: most, value: k.reads, "aria-hidden": "true" }));
  cell.append(rate(k.reads));
  return cell;
}

// columns leaves out the columns of a table of keys in which no key has a number.
function columns(body, keys) {
  for (const name of ["reads", "writes"]) body.parentElement.classList.toggle("no-" + name, keys.every((k) => k[name] === undefined));
}

// why says where the numbers come from, or what is missing for them.
function why(p) {
  const h = p.heat;
  if (p.problem) return "Nothing is decided now: " + p.problem;
  if (!h.prometheus) {
    return "How often keys are read is not known, because the controller has no Prometheus. It places only keys that you pin. Start it with --prometheus URL to place hot keys, too.";
  }
  return h.error ? "Nothing moves for its heat: " + h.error : `Rates over ${h.window}, from ${h.prometheus} and the switches' counters.`;
}

function showPlacement(p) {
  const h = p.heat, known = (name, value, say) => (value === undefined ? [] : [figure(name, say(value))]);
  at("figures").replaceChildren(
    ...known("reads a second", h.readsPerSecond, rate),
    ...known("answered by the network", h.hitRatio, (x) => (100 * x).toFixed(1) + " %"),
    ...known("median, network", h.networkMedianSeconds, micros),
    ...known("median, etcd", h.etcdMedianSeconds, micros),
    figure("keys placed", String(p.placed.length)));
  at("source").textContent = why(p);
  columns(at("placed"), p.placed);
  columns(at("others"), p.others);
  const most = Math.max(1, ...p.placed.concat(p.others).map((k) => k.reads || 0));
  const more = p.placed.length - keysShown;
  at("more").textContent = more > 0 ? `and ${more} more, read less: netcraqctl placement show` : "";
  rows(at("placed"), p.placed.slice(0, keysShown), (k) => [el("td", { "data-label": "chain" }, k.chain || ""), reads(k, most),
    el("td", { class: "n writes", "data-label": "writes/s" }, rate(k.writes)), el("td", { class: "since", "data-label": "since" }, clock(k.since)), el("td", { class: "faint why" }, k.reason)]);
  rows(at("others"), p.others.slice(0, 25), (k) => [reads(k, most),
    el("td", { class: "n writes", "data-label": "writes/s" }, rate(k.writes)), el("td", { class: "faint why" }, k.reason)]);
  at("placement").hidden = false;
}

function state(text, live) {
  at("state").textContent = text;
  at("state").className = live ? "live" : "waiting";
}

const drawing = new Drawing();
const counted = new Rates();
const percent = (v) => (100 * v).toFixed(v > 0 && v < 0.1 ? 1 : 0) + " %";
const plots = {
  hits: new Plot("plot-hits", "Reads answered by the network", ["hit rate"], percent, { most: 1 }),
  latency: new Plot("plot-latency", "Latency, median", ["network", "etcd"], micros),
  queries: new Plot("plot-queries", "Queries a second", ["reads", "writes"], (v) => (v >= 1000 ? (v / 1000).toFixed(1) + "k" : rate(v))),
  failovers: new Plot("plot-failovers", "Failovers", ["failovers"], (v) => v.toFixed(0), { bars: true }),
};
let placed; // placement's last answer; undefined: there is none
let askAgain = 0; // if there is none, when to ask again
let drawn = 0; // when counters were asked for last

async function refresh() {
  try {
    if (!document.hidden) await look();
  } catch (e) {
    state(e.code === "unauthenticated" ? "the controller does not know this browser: follow the link that netcraqctl page gives" : "the controller does not answer: " + e.message, false);
  }
  setTimeout(refresh, 1000);
}

async function look() {
  const [chains, switches] = await Promise.all([ask("/v1/chains"), ask("/v1/switches")]);
  showChains(chains);
  if (placed || Date.now() > askAgain) await lookAtPlacement();
  // Counters are read from the switches: seldom where there are many.
  const now = Date.now() / 1000, every = switches.length > 16 ? 10 : 2;
  if (now - drawn > every - 0.5) {
    drawn = now;
    await counted.ask(switches.filter((s) => s.connected).map((s) => s.name));
    const heat = placed ? placed.heat : {};
    plots.hits.figure.hidden = plots.latency.figure.hidden = !heat.prometheus; // which knows both
    plots.hits.add(now, heat.hitRatio);
    plots.latency.add(now, heat.networkMedianSeconds, heat.etcdMedianSeconds);
    plots.queries.add(now, counted.total("reads"), counted.total("committed"));
    plots.failovers.add(now, 0);
  }
  drawing.update(chains, switches, counted.rates);
  state("live, " + new Date().toLocaleTimeString(), true);
}

// lookAtPlacement asks for placed keys; a controller that has no placement is asked again a minute
// later.
async function lookAtPlacement() {
  try {
    placed = await ask("/v1/placement");
    showPlacement(placed);
  } catch (e) {
    if (e.code !== "failed_precondition") throw e;
    placed = undefined;
    askAgain = Date.now() + 60000;
    at("placement").hidden = true;
  }
}

const eventsShown = 200;
let last = 0;

function showEvent(e) {
  if (e.id <= last) return; // the stream was broken, and begins again
  last = e.id;
  if (e.type === "chain.failover") plots.failovers.mark(Date.parse(e.time) / 1000);
  const list = at("events");
  list.prepend(el("tr", null, el("td", { class: "faint" }, clock(e.time)), el("td", null, e.type), el("td", null, [e.switch, e.chain].filter(Boolean).join(" ")), el("td", null, e.message)));
  while (list.rows.length > eventsShown) list.deleteRow(-1);
}

// follow reads the stream of events. An EventSource would need the names of all kinds of events, which are many and new ones come.
async function follow() {
  try {
    const answer = await fetch("/v1/events?since=" + last);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) break;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line.startsWith("data: ")) showEvent(JSON.parse(line.slice(6)));
    }
  } catch (e) {
    // the controller is gone: refresh says so
  }
  if (!(await sameController())) last = 0;
  setTimeout(follow, 1000);
}

// sameController says whether the event that was shown last is one of the controller that answers now: another one counts its events from 1.
async function sameController() {
  try {
    const answer = await fetch("/v1/events?follow=0&since=" + Math.max(0, last - 1));
    return (await answer.text()).includes("data: ") || last === 0;
  } catch (e) {
    return true;
  }
}

refresh();
follow();
