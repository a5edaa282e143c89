// SPDX-License-Identifier: Apache-2.0
// What all parts of the page use: elements, numbers for people, and questions to the admin API.

export const at = (id) => document.getElementById(id);

// el makes an element: attributes, then children, which are elements or text. Text is never taken
// for markup: keys are any bytes that somebody chose.
export function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

// svg makes an element of a drawing.
export function svg(tag, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function fill(e, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) e.setAttribute(name, value);
  e.append(...children);
  return e;
}

// ask asks the admin API of the same address.
export async function ask(path) {
  const answer = await fetch(path, { signal: AbortSignal.timeout(5000) });
  const body = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(body.error.message), { code: body.error.code });
  return body;
}

// unknown stands for a number that is not known, where others of its kind are.
const unknown = "not known";

// rate is a number a second; undefined: it is not known.
export const rate = (x) => (x === undefined ? unknown : x >= 100 ? x.toFixed(0) : x.toFixed(1));

// brief is a rate in at most five characters.
export function brief(x) {
  if (x >= 1e6) return (x / 1e6).toFixed(1) + "M";
  if (x >= 1e4) return (x / 1e3).toFixed(0) + "k";
  if (x >= 1e3) return (x / 1e3).toFixed(1) + "k";
  return x >= 10 || x === 0 ? x.toFixed(0) : x.toFixed(1);
}

// micros is a time, of seconds.
export const micros = (s) => (s === undefined ? unknown : s < 0.001 ? (s * 1e6).toFixed(0) + " µs" : (s * 1e3).toFixed(1) + " ms");

export const clock = (t) => new Date(t).toLocaleTimeString();

// set changes an element's text only if it differs, so that a selection in it stays.
export function set(e, text) {
  if (e.textContent !== text) e.textContent = text;
}
