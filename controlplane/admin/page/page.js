// SPDX-License-Identifier: Apache-2.0
// The page asks the admin API once a second, and follows its events. All text comes into the document as text, never as markup: keys are any bytes that somebody chose.
"use strict";

const at = (id) => document.getElementById(id);

// el makes an element: attributes, then children, which are elements or text.
function el(tag, attributes, ...children) {
  const e = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error.message), { code: body.error.code });
  return body;
}

const keysShown = 200;

const rate = (x) => (x === undefined ? "?" : x >= 100 ? x.toFixed(0) : x.toFixed(1));
const micros = (s) => (s === undefined ? "?" : s < 0.001 ? (s * 1e6).toFixed(0) + " µs" : (s * 1e3).toFixed(1) + " ms");
const clock = (t) => new Date(t).toLocaleTimeString();

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
  const cell = el("td", { class: "n" });
  if (k.reads !== undefined) cell.append(el("meter", { max: most, value: k.reads }));
  cell.append(rate(k.reads));
  return cell;
}

function showPlacement(p) {
  const h = p.heat, percent = h.hitRatio === undefined ? "?" : (100 * h.hitRatio).toFixed(1) + " %";
  at("figures").replaceChildren(
    figure("reads a second", rate(h.readsPerSecond)),
    figure("answered by the network", percent),
    figure("median, network", micros(h.networkMedianSeconds)),
    figure("median, etcd", micros(h.etcdMedianSeconds)),
    figure("keys placed", String(p.placed.length)));
  at("source").textContent = p.problem ? "Nothing is decided now: " + p.problem
    : h.error ? "Nothing moves for its heat: " + h.error : `Rates over ${h.window}, from ${h.prometheus} and the switches' counters.`;
  const most = Math.max(1, ...p.placed.concat(p.others).map((k) => k.reads || 0));
  const more = p.placed.length - keysShown;
  at("more").textContent = more > 0 ? `and ${more} more, read less: netcraqctl placement show` : "";
  at("placed").replaceChildren(...p.placed.slice(0, keysShown).map((k) => el("tr", null, el("td", { class: "key" }, k.key), el("td", null, k.chain), reads(k, most),
    el("td", { class: "n" }, rate(k.writes)), el("td", null, clock(k.since)), el("td", { class: "faint" }, k.reason))));
  at("others").replaceChildren(...p.others.slice(0, 25).map((k) => el("tr", null, el("td", { class: "key" }, k.key), reads(k, most),
    el("td", { class: "n" }, rate(k.writes)), el("td", { class: "faint" }, k.reason))));
  at("placement").hidden = false;
}

function state(text, live) {
  at("state").textContent = text;
  at("state").className = live ? "live" : "waiting";
}

async function refresh() {
  try {
    showChains(await ask("/v1/chains"));
    try {
      showPlacement(await ask("/v1/placement"));
    } catch (e) {
      if (e.code !== "failed_precondition") throw e; // this controller has no placement
      at("placement").hidden = true;
    }
    state("live, " + new Date().toLocaleTimeString(), true);
  } catch (e) {
    state(e.code === "unauthenticated" ? "the controller does not know this browser: follow the link that netcraqctl page gives" : "the controller does not answer: " + e.message, false);
  }
  setTimeout(refresh, 1000);
}

const eventsShown = 200;
let last = 0;

function showEvent(e) {
  if (e.id <= last) return; // the stream was broken, and begins again
  last = e.id;
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
