// A list of any length: only the rows that can be seen are elements.

import { fill, h } from "./dom.js";

const AROUND = 12; // rows above and below
const TALLEST = 12_000_000; // pixels that every browser scrolls exactly

export class List {
  // render(index) gives what is in a row, named(index) how it is read out where its texts do not
  // say that; chosen(index) hears of a choice by key or pointer.
  constructor({ label, row, render, named, chosen, opened, seen }) {
    this.row = row;
    this.render = render;
    this.named = named;
    this.chosen = chosen;
    this.opened = opened;
    this.seen = seen;
    this.count = 0;
    this.at = -1;
    this.rows = new Map();
    this.room = h("div", { class: "room" });
    this.element = h(
      "div",
      { class: "list", role: "listbox", tabindex: "0", "aria-label": label },
      this.room,
    );
    this.id = `list-${Math.random().toString(36).slice(2, 8)}`;
    this.element.addEventListener("scroll", () => this.soon(), { passive: true });
    this.watcher = new ResizeObserver(() => this.soon());
    this.watcher.observe(this.element);
    this.element.addEventListener("click", (event) => this.clicked(event));
  }

  get scale() {
    return Math.max(1, (this.count * this.row) / TALLEST);
  }

  get top() {
    return this.element.scrollTop * this.scale;
  }

  get height() {
    return this.element.clientHeight;
  }

  setCount(count) {
    this.count = count;
    this.room.style.height = `${Math.min(count * this.row, TALLEST)}px`;
    this.rows.clear();
    this.room.replaceChildren();
    this.draw();
  }

  choose(index, { tell = true, centre = false } = {}) {
    const at = Math.max(0, Math.min(index, this.count - 1));
    if (this.count === 0) return;
    this.at = at;
    this.show(at, centre);
    this.draw();
    if (tell) this.chosen?.(at);
  }

  show(index, centre) {
    const top = index * this.row;
    const before = this.top;
    if (centre && (top < before || top + this.row > before + this.height)) {
      this.element.scrollTop = (top - this.height / 2) / this.scale;
    } else if (top < before) {
      this.element.scrollTop = top / this.scale;
    } else if (top + this.row > before + this.height) {
      this.element.scrollTop = (top + this.row - this.height) / this.scale;
    }
  }

  move(step) {
    this.choose(this.at < 0 ? 0 : this.at + step);
  }

  get page() {
    return Math.max(1, Math.floor(this.height / this.row) - 1);
  }

  soon() {
    this.asked ??= requestAnimationFrame(() => {
      this.asked = undefined;
      this.draw();
    });
  }

  // Draw again what is in the rows: it has changed.
  refresh() {
    this.rows.clear();
    this.soon();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.top / this.row) - AROUND);
    const last = Math.min(this.count - 1, Math.ceil((this.top + this.height) / this.row) + AROUND);
    const rows = new Map();
    for (let index = first; index <= last; index++) {
      rows.set(index, this.rows.get(index) ?? this.drawn(index));
    }
    const same = rows.size === this.rows.size && [...rows.keys()].every((index) => this.rows.has(index));
    if (!same) fill(this.room, [...rows.values()]);
    this.rows = rows;
    for (const [index, row] of rows) this.placed(index, row);
    if (this.at >= first && this.at <= last) {
      this.element.setAttribute("aria-activedescendant", `${this.id}-${this.at}`);
    } else {
      this.element.removeAttribute("aria-activedescendant");
    }
    if (last >= first) this.seen?.(first, last);
  }

  drawn(index) {
    return h(
      "div",
      {
        class: "row",
        role: "option",
        id: `${this.id}-${index}`,
        "aria-posinset": String(index + 1),
        "aria-setsize": String(this.count),
        "aria-label": this.named?.(index),
        "data-index": String(index),
      },
      this.render(index),
    );
  }

  placed(index, row) {
    const chosen = String(index === this.at);
    if (row.getAttribute("aria-selected") !== chosen) row.setAttribute("aria-selected", chosen);
    const shift = this.scale === 1 ? 0 : this.element.scrollTop - this.top;
    const place = `translateY(${index * this.row + shift}px)`;
    if (row.style.transform !== place) row.style.transform = place;
  }

  clicked(event) {
    const row = event.target.closest("[data-index]");
    if (!row) return;
    const index = Number(row.dataset.index);
    this.choose(index);
    this.opened?.(index);
  }

  close() {
    this.watcher.disconnect();
    cancelAnimationFrame(this.asked);
  }
}
