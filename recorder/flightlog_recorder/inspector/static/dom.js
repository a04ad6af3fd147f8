// Elements made of text: nothing that comes from a log is ever parsed as HTML.

// What a reader would not see, or what would move other text around: shown as its code point.
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2064\u2066-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|\p{Surrogate}/gu;

export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "class") element.className = value;
    else if (name in element && typeof value !== "string") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  append(element, children);
  return element;
}

export function append(element, children) {
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(element, ...children) {
  element.replaceChildren();
  append(element, children);
  return element;
}

// Somebody's text as nodes: what is hidden in it becomes visible.
export function shown(text) {
  const words = String(text);
  const nodes = [];
  let at = 0;
  for (const found of words.matchAll(HIDDEN)) {
    if (found.index > at) nodes.push(words.slice(at, found.index));
    nodes.push(h("span", { class: "hid", title: "a character that is not visible" }, code(found[0])));
    at = found.index + found[0].length;
  }
  if (at < words.length) nodes.push(words.slice(at));
  return nodes;
}

// As above, cut, in one line and without elements: for titles and labels.
export function plain(text, most = 200) {
  const words = String(text).slice(0, most).replace(HIDDEN, code);
  return words.replace(/\s+/g, " ");
}

function code(character) {
  return `\u27e8${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`;
}

export function say(text) {
  document.getElementById("say").textContent = text;
}

let toasted;
export function toast(text) {
  const place = document.getElementById("toast");
  fill(place, h("p", {}, shown(text), h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => place.replaceChildren() }, "\u00d7")));
  clearTimeout(toasted);
  toasted = setTimeout(() => place.replaceChildren(), 12_000);
}
