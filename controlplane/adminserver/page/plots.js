// SPDX-License-Identifier: Apache-2.0
// Plots over the last ten minutes, of what this page has seen.
import { at, el, set, svg } from "./dom.js";

const span = 600; // seconds
const height = 120;
const edge = { left: 44, right: 8, top: 8, bottom: 18 }; // left: at least
const letter = 7; // pixels that a letter of the scale takes, at most

// nice is a round number that is no less than x.
function nice(x) {
  if (!(x > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(x));
  return [1, 2, 5, 10].map((f) => f * power).find((v) => v >= x * 0.999);
}

// Plot is a figure with lines, or with bars, over time.
export class Plot {
  // say formats a value for people; series are the names of lines; most is the top of the scale if
  // it is fixed.
  constructor(id, title, series, say, { most, bars } = {}) {
    Object.assign(this, { title, series, say, most, bars, samples: [], newest: 0, cursor: undefined, left: edge.left });
    this.value = el("output", null);
    this.drawing = el("div", { class: "plot-drawing" });
    const legend = el("span", { class: "plot-legend" }, ...(series.length > 1 ? series.map((name, i) => el("span", { class: "chain-name c" + i }, name)) : []));
    this.figure = el("figure", { id, tabindex: "0", role: "img" }, el("figcaption", null, el("b", null, title), legend, this.value), this.drawing);
    this.figure.addEventListener("keydown", (e) => this.key(e));
    this.figure.addEventListener("blur", () => this.point(undefined));
    this.drawing.addEventListener("mousemove", (e) => this.pointAt(e.offsetX));
    this.drawing.addEventListener("mouseleave", () => this.point(undefined));
    at("plots").append(this.figure);
    new ResizeObserver(() => this.show()).observe(this.drawing);
  }

  // add takes values at a time (seconds), one for each series; undefined: it is not known.
  add(time, ...values) {
    this.samples.push({ time, values });
    while (this.samples.length && this.samples[0].time < time - span) this.samples.shift();
    if (this.cursor !== undefined) this.cursor = Math.min(this.cursor, this.samples.length - 1);
    this.show();
  }

  // mark notes that something has happened at a time, which may be over already.
  mark(time) {
    const i = this.samples.findIndex((s) => s.time > time);
    this.samples.splice(i < 0 ? this.samples.length : i, 0, { time, values: [1] });
    this.show();
  }

  // Arrow keys go from sample to sample, Home and End to the first and the last, Escape leaves.
  key(e) {
    const last = this.samples.length - 1, now = this.cursor === undefined ? last + 1 : this.cursor;
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: last, Escape: undefined }[e.key];
    if (to === undefined && e.key !== "Escape") return;
    e.preventDefault();
    this.point(to === undefined ? undefined : Math.max(0, Math.min(last, to)));
  }

  pointAt(x) {
    const time = this.newest - span + ((x - this.left) / (this.width - this.left - edge.right)) * span;
    let best;
    this.samples.forEach((s, i) => { if (best === undefined || Math.abs(s.time - time) < Math.abs(this.samples[best].time - time)) best = i; });
    this.point(best);
  }

  point(index) {
    this.cursor = index;
    this.show();
  }

  // sentence is what the values are at the cursor, or now.
  sentence() {
    const s = this.samples[this.cursor === undefined ? this.samples.length - 1 : this.cursor];
    if (this.bars && this.cursor === undefined) return this.say(this.samples.reduce((n, one) => n + one.values[0], 0));
    if (!s) return "nothing seen yet";
    const said = s.values.map((v, i) => (this.series.length > 1 ? this.series[i] + " " : "") + (v === undefined ? "not known" : this.say(v))).join(", ");
    return (this.cursor === undefined ? "" : new Date(s.time * 1000).toLocaleTimeString() + ": ") + said;
  }

  show() {
    const width = this.drawing.clientWidth;
    set(this.value, this.sentence());
    this.figure.setAttribute("aria-label", `${this.title}, over ten minutes: ${this.sentence()}`);
    if (!width || !this.samples.length) return;
    this.width = width;
    this.newest = this.samples[this.samples.length - 1].time;
    const values = this.samples.flatMap((s) => s.values).filter((v) => v !== undefined);
    const top = this.most || nice(Math.max(0, ...values));
    const scale = [0, 0.5, 1].map((part) => ({ part, text: this.say(part * top) }));
    this.left = Math.max(edge.left, 7 + letter * Math.max(...scale.map((s) => s.text.length)));
    const x = (time) => this.left + ((time - this.newest + span) / span) * (width - this.left - edge.right);
    const y = (value) => edge.top + (1 - Math.min(1, value / top)) * (height - edge.top - edge.bottom);
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" });
    for (const { part, text } of scale) {
      root.append(svg("line", { class: "grid", x1: this.left, x2: width - edge.right, y1: y(part * top), y2: y(part * top) }));
      if (values.length && (part !== 0.5 || !this.bars)) root.append(svg("text", { x: this.left - 5, y: y(part * top) + 4, "text-anchor": "end" }, text));
    }
    for (const minutes of width > 320 ? [10, 5, 0] : [10, 0]) {
      root.append(svg("text", { x: x(this.newest - minutes * 60), y: height - 4, "text-anchor": minutes === 10 ? "start" : minutes ? "middle" : "end" }, minutes ? `-${minutes} min` : "now"));
    }
    this.series.forEach((_, i) => root.append(this.bars ? this.bar(i, x, y, width) : this.line(i, x, y)));
    if (this.cursor !== undefined) {
      const s = this.samples[this.cursor];
      root.append(svg("line", { class: "cursor", x1: x(s.time), x2: x(s.time), y1: edge.top, y2: height - edge.bottom }));
    }
    this.drawing.replaceChildren(root);
  }

  // line breaks where a value is not known.
  line(i, x, y) {
    let d = "", pen = "M";
    for (const s of this.samples) {
      if (s.values[i] === undefined) {
        pen = "M";
        continue;
      }
      d += `${pen}${x(s.time).toFixed(1)} ${y(s.values[i]).toFixed(1)}`;
      if (pen === "M") d += "h.01"; // a value by itself is a dot
      pen = "L";
    }
    return svg("path", { class: "series c" + i, d });
  }

  bar(i, x, y, width) {
    const thick = Math.max(2, ((width - this.left - edge.right) / span) * 5);
    const d = this.samples.filter((s) => s.values[i]).map((s) => `M${x(s.time).toFixed(1)} ${y(0)}V${y(s.values[i]).toFixed(1)}`).join("");
    return svg("path", { class: "bars c" + i, d, "stroke-width": thick });
  }
}
