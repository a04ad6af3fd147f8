// Values as lines: long texts folded, all of them on demand, in pieces that a page can bear.

import { getText } from "./access.js";
import { h, shown, toast } from "./dom.js";
import { number, size } from "./words.js";

const PIECE = 60_000; // characters that are shown at a time

// whole: where all of a text is; base: the way to the value there.
export function partsOf({ lines, more }, whole, base = []) {
  // The braces around it all say nothing.
  const bare = lines.length > 1 && !lines[0].name && !lines[0].text;
  const rows = (bare ? lines.slice(1) : lines).map((line) => lineOf(line, whole, base, bare ? 1 : 0));
  if (more) rows.push(h("p", { class: "more" }, allButton("Show all of it", whole, base)));
  return h("div", { class: "parts" }, rows);
}

function lineOf(line, whole, base, less) {
  const element = h("div", { class: `part is-${line.kind}` });
  element.style.paddingInlineStart = `${Math.min(line.depth - less, 24) * 14}px`;
  if (line.name) element.append(h("bdi", { class: "key" }, shown(line.name)), ": ");
  const text = line.text ?? "";
  if (line.kind === "object" || line.kind === "list") {
    element.append(h("span", { class: "count" }, text || (line.kind === "list" ? `[${line.size}]` : "")));
    return element;
  }
  const value = h("bdi", { class: `value${text.includes("\n") ? " long" : ""}` }, shown(text));
  element.append(value);
  if (line.path) {
    const much = line.kind === "blob" ? size(line.size) : `${number(line.size)} characters`;
    const label = `Show all ${much}`;
    element.append(allButton(label, whole, [...base, ...line.path], value));
  }
  return element;
}

export function allButton(label, whole, path, value) {
  const button = h("button", { type: "button", class: "quiet all" }, label);
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const text = await getText(whole, { path: JSON.stringify(path) });
      const place = value ?? h("bdi", { class: "value long" });
      place.classList.add("long");
      place.replaceChildren();
      button.replaceWith(...(value ? [] : [place]));
      showPiece(place, text, 0);
    } catch (error) {
      button.disabled = false;
      toast(error.message);
    }
  });
  return button;
}

function showPiece(place, text, from) {
  place.append(...shown(text.slice(from, from + PIECE)));
  const left = text.length - from - PIECE;
  if (left <= 0) return;
  const more = h("button", { type: "button", class: "quiet all" }, `\u2026 ${number(left)} more characters`);
  more.addEventListener("click", () => {
    more.remove();
    showPiece(place, text, from + PIECE);
  });
  place.append(more);
}
