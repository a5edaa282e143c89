// SPDX-License-Identifier: Apache-2.0
// A key in a table. A long one is shortened in the middle, because keys begin alike and differ at
// the end. Its title, a click or Enter show all of it, and all of it is copied.
import { el } from "./dom.js";

const longest = 56;
const front = 32;

// shortened is a key in at most `longest` characters.
export function shortened(key) {
  const all = [...key];
  if (all.length <= longest) return key;
  return all.slice(0, front).join("") + "…" + all.slice(front + 1 - longest).join("");
}

const open = new Set(); // keys that are shown whole

// keyCell is a table's cell with a key and a button that copies it.
export function keyCell(key) {
  const short = shortened(key);
  const cell = el("td", { class: "key" });
  const text = el("span", null, open.has(key) ? key : short);
  if (short !== key) {
    for (const [name, value] of Object.entries({ title: key, tabindex: "0", role: "button", class: "long", "aria-expanded": open.has(key) })) text.setAttribute(name, value);
    const turn = () => {
      if (!open.delete(key)) open.add(key);
      text.textContent = open.has(key) ? key : short;
      text.setAttribute("aria-expanded", open.has(key));
    };
    text.addEventListener("click", () => { if (String(getSelection()) === "") turn(); });
    text.addEventListener("keydown", (e) => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); turn(); } });
    // What is selected of a shortened key and copied is the whole key.
    text.addEventListener("copy", (e) => {
      if (open.has(key)) return;
      e.clipboardData.setData("text/plain", key);
      e.preventDefault();
    });
  }
  const copy = el("button", { type: "button", class: "copy", title: "copy the key", "aria-label": "copy the key " + short }, "copy");
  copy.addEventListener("click", async () => {
    copy.textContent = (await copied(key)) ? "copied" : "not allowed";
    setTimeout(() => { copy.textContent = "copy"; }, 1500);
  });
  cell.append(text, copy);
  return cell;
}

// copied puts text on the clipboard. Pages that come by plain HTTP from another machine have none
// but by an old way.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch (e) {
    const area = el("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

// rows shows one row for each of some things with a key, and leaves those rows alone that stay as
// they are: where the focus is, and what is selected, does not change once a second.
export function rows(body, things, cells) {
  const old = new Map([...body.rows].map((r) => [r.dataset.key, r]));
  things.forEach((k, i) => {
    let row = old.get(k.key);
    old.delete(k.key);
    if (!row) {
      row = el("tr", null, keyCell(k.key));
      row.dataset.key = k.key;
    }
    const rest = cells(k);
    while (row.cells.length > 1) row.lastChild.remove();
    row.append(...rest);
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] || null);
  });
  for (const row of old.values()) row.remove();
}
