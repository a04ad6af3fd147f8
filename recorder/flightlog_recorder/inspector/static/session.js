// One session: its timeline, and beside it the event, what it changed, and the state there.

import { address, get, of } from "./access.js";
import { askFork, askJump, askRuling, askSearch } from "./ask.js";
import { Detail } from "./detail.js";
import { fill, h, plain, say, shown, toast } from "./dom.js";
import { familyOf } from "./family.js";
import { List } from "./list.js";
import { rowOf } from "./row.js";
import { number, plural } from "./words.js";

const PAGE = 200; // events that are asked for at a time
const KEPT = 80; // pages that are kept
const SOON = 300; // milliseconds that news, and steps, are gathered for before they are told

export class SessionView {
  constructor(session, seq, go) {
    this.session = session;
    this.first = seq;
    this.go = go;
    this.pages = new Map();
    this.asked = new Set();
    this.last = 0;
    this.follows = seq === undefined || seq === null;
    this.detail = new Detail(session, (to) => this.select(to));
    this.list = new List({
      label: "Events",
      row: matchMedia("(max-width: 720px)").matches ? 46 : 32,
      render: (index) => rowOf(index + 1, this.at(index + 1)),
      chosen: (index) => this.chosen(index + 1),
      opened: () => this.element.classList.add("reading"),
      seen: (first, last) => this.seen(first + 1, last + 1),
    });
    this.element = this.frame();
    this.looked = () => this.listen();
    document.addEventListener("visibilitychange", this.looked);
  }

  frame() {
    this.scrub = h("input", {
      type: "range",
      min: "1",
      max: "1",
      value: "1",
      "aria-label": "Event",
      oninput: () => this.list.choose(Number(this.scrub.value) - 1, { centre: true }),
    });
    this.marks = h("div", { class: "marks", "aria-hidden": "true" });
    this.place = h("span", { class: "place" });
    this.about = h("div", { class: "about" });
    this.asks = h("div", { class: "asks" });
    this.trouble = h("p", { class: "trouble", role: "alert" });
    this.progress = h("p", { class: "progress" });
    this.follow = h("button", { type: "button", "aria-pressed": String(this.follows), onclick: () => this.setFollow(!this.follows) }, "Follow");
    const button = (text, act, title) => h("button", { type: "button", title, onclick: act }, text);
    return h(
      "section",
      { class: "session", "aria-label": "Session" },
      h(
        "div",
        { class: "head" },
        this.about,
        h(
          "div",
          { class: "acts", role: "toolbar", "aria-label": "What can be done" },
          (this.deaf = h("span", { class: "deaf", role: "status" })),
          this.follow,
          button("Fork\u2026", () => this.fork(), "A new session from here (f)"),
          button("Family", () => this.family(), "Forks and sub-agents (y)"),
          h("a", { class: "button", href: of(this.session, "export"), download: `${this.session}.jsonl` }, "Export"),
        ),
      ),
      this.asks,
      this.trouble,
      this.progress,
      h("div", { class: "scrub" }, button("\u2039", () => this.list.move(-1), "Back (k)"), h("div", { class: "way" }, this.scrub, this.marks), button("\u203a", () => this.list.move(1), "Forward (j)"), this.place),
      h(
        "div",
        { class: "halves" },
        this.list.element,
        h("div", { class: "side" }, h("button", { type: "button", class: "back quiet", onclick: () => this.element.classList.remove("reading") }, "\u2039 timeline"), this.detail.element),
      ),
    );
  }

  async start() {
    const found = await get(of(this.session));
    this.tell(found.row);
    this.grow(found.last);
    this.list.choose((this.first ?? found.last) - 1, { centre: true });
    this.list.element.focus({ preventScroll: true });
    this.listen();
    await this.look();
    await this.mark();
  }

  // Where something went wrong, along the whole way; drawn once, as it reads all of the log.
  async mark() {
    const { marks, last } = await get(of(this.session, "marks"));
    if (this.closed || last < 2) return;
    this.marked = { marks, last };
    this.drawMarks();
  }

  drawMarks() {
    if (!this.marked) return;
    fill(
      this.marks,
      this.marked.marks.map(([seq, mark]) => {
        const tick = h("i", { class: mark });
        tick.style.insetInlineStart = `${((seq - 1) / Math.max(1, this.last - 1)) * 100}%`;
        return tick;
      }),
    );
  }

  // row: the catalog's, or what the state says where there is none.
  tell(row) {
    this.row ??= row;
    this.stalled ??= { since: row?.stalled, seq: row?.seq };
    const labels = Object.entries(row?.labels ?? {});
    const crumbs = document.getElementById("crumbs");
    fill(crumbs, h("bdi", { class: "id" }, shown(this.session)));
    fill(
      this.about,
      h("h1", {}, h("bdi", {}, shown(plain(row?.key ?? this.session, 120)))),
      (this.status = h("span", { class: "status" })),
      h("span", { class: "labels" }, labels.slice(0, 8).map(([name, value]) => h("bdi", { class: "chip" }, shown(plain(`${name}=${value}`, 60))))),
      row?.model && h("bdi", { class: "model" }, shown(plain(row.model, 60))),
      (this.tokens = h("span", { class: "tokens" })),
    );
    fill(this.trouble, row?.trouble ? shown(row.trouble) : "");
  }

  grow(last) {
    this.last = last;
    this.scrub.max = String(last);
    this.list.setCount(last);
    this.showPlace();
    this.drawMarks();
  }

  showPlace() {
    const seq = this.list.at + 1;
    this.place.textContent = `${number(Math.max(0, seq))} of ${number(this.last)}`;
    this.scrub.value = String(seq);
    this.scrub.setAttribute("aria-valuetext", `event ${seq} of ${this.last}`);
  }

  // Rows

  at(seq) {
    const page = this.pages.get(Math.floor((seq - 1) / PAGE));
    return page?.[(seq - 1) % PAGE];
  }

  seen(first, last) {
    for (let page = Math.floor((first - 1) / PAGE); page * PAGE < last; page++) this.need(page);
  }

  async need(page) {
    if (this.asked.has(page)) return;
    const from = page * PAGE + 1;
    const until = Math.min(this.last, from + PAGE - 1);
    const held = this.pages.get(page);
    if (until < from || (held && held.length >= until - from + 1)) return;
    this.asked.add(page);
    try {
      const { rows, damage } = await get(of(this.session, "events"), { first: from, last: until });
      this.pages.delete(page);
      this.pages.set(page, rows);
      while (this.pages.size > KEPT) this.pages.delete(this.pages.keys().next().value);
      if (damage) fill(this.trouble, shown(damage));
    } catch (error) {
      this.pages.set(page, new Array(until - from + 1).fill({ failed: true }));
      this.failed(error);
    } finally {
      this.asked.delete(page);
    }
    if (!this.closed) this.list.refresh();
  }

  select(seq) {
    if (seq !== this.last) this.setFollow(false);
    this.list.choose(seq - 1, { centre: true });
  }

  chosen(seq) {
    if (seq < this.last && this.follows) this.setFollow(false);
    this.showPlace();
    this.detail.show(seq);
    clearTimeout(this.linked);
    this.linked = setTimeout(() => this.link(seq), SOON);
  }

  link(seq) {
    this.go(`/sessions/${encodeURIComponent(this.session)}/${seq}`, { replace: true });
  }

  // What comes

  // Only while somebody looks: a browser has few connections to one server for all its tabs.
  listen() {
    this.source?.close();
    if (document.hidden || this.over) return;
    this.source = new EventSource(of(this.session, "live"));
    this.source.onmessage = (message) => this.heard(JSON.parse(message.data));
    this.source.onopen = () => fill(this.deaf, "");
    this.source.onerror = () => this.lost();
  }

  // A browser tries again by itself, unless it was refused: an inspector that began anew knows of no token.
  lost() {
    const refused = this.source.readyState === EventSource.CLOSED;
    fill(this.deaf, refused ? "not connected: open the address that flightlog inspect prints now" : "not connected, trying again");
  }

  // Progress is shown until something is stored: then that says what came of it.
  heard({ last, rewound, trouble, over, progress, stalled }) {
    if (stalled !== undefined) {
      this.stalled = { since: stalled, seq: last };
      this.look().catch((error) => this.failed(error));
    }
    if (progress !== undefined) fill(this.progress, shown(progress));
    else if (last !== this.last) fill(this.progress, "");
    if (trouble) fill(this.trouble, shown(trouble));
    if (over) this.over = true;
    if (over) this.source.close();
    if (rewound) {
      this.pages.clear();
      this.detail.forget();
    }
    if (last === this.last && !rewound) return;
    const came = last - this.last;
    this.grow(last);
    if (this.follows || this.list.at >= last) this.list.choose(last - 1);
    this.came = (this.came ?? 0) + came;
    this.soon ??= setTimeout(() => this.announce(), SOON);
  }

  announce() {
    this.soon = undefined;
    if (this.came > 0) say(`${plural(this.came, "new event")}, ${number(this.last)} in all`);
    this.came = 0;
    this.look().catch((error) => this.failed(error));
  }

  setFollow(follows) {
    this.follows = follows;
    this.follow.setAttribute("aria-pressed", String(follows));
    if (follows) this.list.choose(this.last - 1);
  }

  // The state at the end: what it is, and whether it waits for a person.
  async look() {
    if (!this.last || this.closed) return;
    const state = await get(of(this.session, "states", this.last));
    if (this.closed) return;
    const used = state.lines.find(([name]) => name === "tokens");
    if (!this.row) this.tell(state.about);
    fill(this.tokens, used ? shown(`tokens ${used[1]}`) : "");
    const status = this.statusOf(state);
    this.status.className = `status ${status}`;
    fill(this.status, status);
    fill(this.asks, state.undecided.map((call) => this.question(call, state.seq)));
  }

  // The recorder's word holds until something happens.
  statusOf(state) {
    if (state.undecided.length) return "asks";
    const { since, seq } = this.stalled;
    return since && seq === this.last ? "stalled" : state.status;
  }

  question(call, seq) {
    const key = JSON.stringify([call.announced_by, call.call_id]);
    const sent = this.sent?.has(key);
    return h(
      "div",
      { class: "ask", role: "group", "aria-label": "A decision is needed" },
      h("strong", {}, h("bdi", {}, shown(plain(call.name || call.call_id, 60)))),
      h("bdi", {}, shown(plain(call.question || "was running when its process died. What became of it?", 300))),
      h("button", { type: "button", class: "primary", disabled: sent, onclick: () => this.rule(call, key, seq) }, sent ? "Sent" : "Decide\u2026"),
      sent && h("span", { class: "note" }, "its writer takes it when it runs next"),
    );
  }

  async rule(call, key, seq) {
    if (!(await askRuling(this.session, call, seq))) return;
    this.sent = (this.sent ?? new Set()).add(key);
    say("the decision was sent");
    await this.look();
  }

  async fork() {
    const made = await askFork(this.session, this.list.at + 1);
    if (made) this.go(`/sessions/${encodeURIComponent(made)}`);
  }

  async family() {
    const to = await familyOf(this.session);
    if (to) this.go(to);
  }

  async find(what, back, words) {
    say("searching");
    this.element.classList.add("busy");
    try {
      const { seq, why } = await get(address(of(this.session, "find"), { what, words, from: this.list.at + 1, back: back ? "1" : "" }));
      if (seq === null) toast([`nothing of that ${back ? "before" : "after"} here`, why].filter(Boolean).join("; "));
      else this.select(seq);
    } catch (error) {
      this.failed(error);
    } finally {
      this.element.classList.remove("busy");
    }
  }

  async search(back) {
    if (!back || !this.words) this.words = (await askSearch(this.words)) ?? this.words;
    if (this.words) await this.find("words", back, this.words);
  }

  async jump() {
    const seq = await askJump(this.last);
    if (seq) this.select(seq);
  }

  key(event) {
    const { list } = this;
    const acts = {
      ArrowDown: () => list.move(1), j: () => list.move(1), ArrowRight: () => list.move(1),
      ArrowUp: () => list.move(-1), k: () => list.move(-1), ArrowLeft: () => list.move(-1),
      PageDown: () => list.move(list.page), PageUp: () => list.move(-list.page),
      Home: () => list.choose(0), End: () => list.choose(list.count - 1),
      e: () => this.find("error", false), E: () => this.find("error", true),
      t: () => this.find("tool", false), T: () => this.find("tool", true),
      u: () => this.find("turn", false), U: () => this.find("turn", true),
      "/": () => this.search(false), N: () => this.search(true),
      n: () => (this.words ? this.find("words", false, this.words) : this.search(false)),
      g: () => this.jump(), f: () => this.fork(), y: () => this.family(),
      l: () => this.setFollow(!this.follows),
      1: () => this.detail.reveal("event"), 2: () => this.detail.reveal("changes"), 3: () => this.detail.reveal("state"),
      Enter: () => this.element.classList.add("reading"),
      Escape: () => (this.element.classList.contains("reading") ? this.element.classList.remove("reading") : this.go("/")),
    };
    if (event.key === "Enter" && event.target !== list.element) return false;
    if (event.target.closest(".side") && /^(Arrow|Page|Home|End)/.test(event.key)) return false;
    if (!Object.hasOwn(acts, event.key)) return false;
    acts[event.key]();
    return true;
  }

  failed(error) {
    if (error.name === "AbortError" || this.closed) return;
    if (this.last === 0) fill(this.element, h("div", { class: "empty" }, h("h1", {}, "No such session"), h("p", {}, shown(error.message))));
    else toast(error.message);
  }

  close() {
    this.closed = true;
    document.removeEventListener("visibilitychange", this.looked);
    this.source?.close();
    clearTimeout(this.soon);
    clearTimeout(this.linked);
    this.list.close();
    this.detail.close();
  }
}
