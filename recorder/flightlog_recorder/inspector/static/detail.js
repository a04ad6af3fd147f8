// The event, what it changed, and the state there.

import { get, of } from "./access.js";
import { fill, h, shown } from "./dom.js";
import { allButton, partsOf } from "./parts.js";
import { number, plural, size } from "./words.js";

const SLOW = 500; // milliseconds until it is said that a state takes its time
const SETTLE = 70; // milliseconds that a place must stay before its state is asked for

export class Detail {
  constructor(session, select) {
    this.session = session;
    this.select = select;
    this.headline = h("p", { class: "headline", "aria-live": "off" });
    this.event = section("event", "Event");
    this.changes = section("changes", "What it changed");
    this.state = section("state", "State");
    this.element = h("div", { class: "detail" }, this.headline, this.event.element, this.changes.element, this.state.element);
  }

  reveal(name) {
    this[name].element.scrollIntoView({ block: "start" });
  }

  forget() {
    this.seq = undefined;
  }

  show(seq) {
    if (seq === this.seq) return;
    this.seq = seq;
    this.asking?.abort();
    this.asking = new AbortController();
    this.element.classList.add("stale");
    this.element.setAttribute("aria-busy", "true");
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.load(seq, this.asking.signal), SETTLE);
  }

  async load(seq, signal) {
    const read = (...rest) => get(of(this.session, ...rest), {}, { signal });
    const slow = setTimeout(() => this.wait(), SLOW);
    await Promise.all([
      this.told(this.event, read("events", seq).then((found) => this.showEvent(found))),
      this.told(this.state, read("states", seq).then((found) => this.showState(found))),
    ]);
    if (signal.aborted) return clearTimeout(slow);
    this.element.classList.remove("stale");
    // These come last: what is before the event may have to be read from the beginning.
    await this.told(this.changes, read("changes", seq).then((found) => this.showChanges(found)));
    clearTimeout(slow);
    if (!signal.aborted) this.element.setAttribute("aria-busy", "false");
  }

  async told(place, work) {
    try {
      await work;
    } catch (error) {
      if (error.name !== "AbortError") fill(place.body, h("p", { class: "trouble" }, shown(error.message)));
    }
  }

  wait() {
    const place = this.element.classList.contains("stale") ? this.headline : this.changes.body;
    fill(place, h("span", { class: "note" }, "reading the log \u2026"));
  }

  showEvent({ event, size: bytes, payload }) {
    const path = of(this.session, "events", event.seq, "text");
    const parent = event.parent_seq;
    fill(
      this.event.body,
      h(
        "p",
        { class: "facts" },
        h("strong", {}, `${number(event.seq)} `, shown(event.type)),
        h("span", {}, shown(event.ts)),
        parent !== null && h("button", { type: "button", class: "quiet", onclick: () => this.select(parent) }, `answers ${number(parent)}`),
        h("span", {}, size(bytes)),
        event.harness_version && h("bdi", {}, shown(event.harness_version)),
      ),
      partsOf(payload, path),
      event.type === "model_request" && this.request(event.seq),
      h("details", { class: "chain" }, h("summary", {}, "chain"), h("p", {}, `digest ${event.digest}`), h("p", {}, `prev ${event.prev ?? "none: the first"}`)),
    );
  }

  request(seq) {
    const place = h("div", { class: "request" });
    const button = h("button", { type: "button" }, "Show the exact request");
    button.addEventListener("click", async () => {
      button.disabled = true;
      try {
        const found = await get(of(this.session, "requests", seq));
        const proof = `made from the log up to ${number(found.upto)}, proved by ${found.digest}`;
        const all = of(this.session, "requests", seq, "text");
        fill(place, h("p", { class: "proof" }, proof), partsOf(found.request, all));
      } catch (error) {
        fill(place, h("p", { class: "trouble" }, shown(error.message)));
      }
    });
    fill(place, button);
    return place;
  }

  showState(state) {
    fill(this.headline, shown(state.headline));
    const made = state.stored ? `snapshot @ ${number(state.stored)}, applied ${number(state.applied)}` : `applied ${plural(state.applied, "event")}`;
    fill(
      this.state.body,
      h("p", { class: "facts" }, made),
      h("dl", {}, state.lines.map(([name, text]) => [h("dt", {}, name), h("dd", {}, h("bdi", {}, shown(text)))])),
      h("h3", {}, "Context, latest first"),
      h("ol", { class: "messages" }, state.context.map((line) => h("li", {}, this.message(state.seq, line)))),
      h("details", {}, h("summary", {}, "All of the state"), partsOf(state.rest, this.textAt(state.seq))),
    );
  }

  textAt(seq) {
    return of(this.session, "states", seq, "text");
  }

  // A message of the context: one line, and all of it once that is opened.
  message(seq, { text, path }) {
    const line = h("bdi", {}, shown(text));
    if (!path) return line;
    const place = h("div", {});
    const load = async () => {
      const found = await get(of(this.session, "states", seq, "part"), { path: JSON.stringify(path) });
      fill(place, partsOf(found, this.textAt(seq), path));
    };
    const open = () => load().catch((error) => fill(place, h("p", { class: "trouble" }, shown(error.message))));
    const details = h("details", { ontoggle: () => details.open && !place.hasChildNodes() && open() }, h("summary", {}, line), place);
    return details;
  }

  showChanges({ seq, changes }) {
    const texts = { old: this.textAt(seq - 1), now: this.textAt(seq) };
    const told = changes.filter((change) => !change.usual);
    const usual = changes.filter((change) => change.usual).map((change) => change.path);
    fill(
      this.changes.body,
      told.length ? told.map((change) => changeOf(change, texts)) : h("p", { class: "facts" }, "nothing but its place"),
      usual.length > 0 && h("p", { class: "facts" }, `and ${usual.join(", ")}`),
    );
  }

  close() {
    clearTimeout(this.soon);
    this.asking?.abort();
  }
}

const SIGNS = { added: "+", removed: "\u2212", changed: "~" };

// texts: where all of what it was, and of what it is now, can be had.
function changeOf(change, texts) {
  const [old, now] = [change.old, change.new].map(scalar);
  if (!change.lines && old !== null && now !== null) {
    const words = [h("bdi", { class: "old" }, shown(old)), old && now ? " \u2192 " : "", h("bdi", { class: "now" }, shown(now))];
    return h("div", { class: `change ${change.kind}` }, pathOf(change, words));
  }
  const body = [];
  if (change.lines) {
    const lines = change.lines.map((line) => {
      const sign = line[0] === "+" ? "added" : line[0] === "-" ? "removed" : "same";
      return h("div", { class: `line ${sign}` }, h("bdi", {}, shown(line)));
    });
    body.push(h("div", { class: "lines" }, lines));
    if (change.more) body.push(h("p", { class: "more" }, allButton("Show all of the new text", texts.now, change.at)));
  }
  if (change.old && !isNothing(change.old)) body.push(h("div", { class: "removed" }, partsOf(change.old, texts.old, change.at)));
  if (change.new && !isNothing(change.new)) body.push(h("div", { class: "added" }, partsOf(change.new, texts.now, change.at)));
  return h("div", { class: `change ${change.kind}` }, pathOf(change), body);
}

function pathOf(change, words) {
  return h(
    "p",
    { class: "path" },
    h("span", { class: "sign", role: "img", "aria-label": change.kind }, SIGNS[change.kind]),
    h("bdi", { class: "where" }, shown(change.path)),
    words && [" ", words],
  );
}

// A value that fits on the line of its path; "" for none at all, null for one that does not.
function scalar(parts) {
  if (!parts) return "";
  const [line] = parts.lines;
  const fits = parts.lines.length === 1 && line.path === undefined && (line.text ?? "").length <= 60 && line.kind !== "object" && line.kind !== "list";
  return fits ? line.text ?? "" : null;
}

function isNothing({ lines }) {
  return lines.length === 1 && lines[0].kind === "word" && lines[0].text === "null";
}

function section(name, title) {
  const body = h("div", { class: "body" });
  const element = h("section", { class: `pane ${name}`, "aria-label": title, tabindex: "-1" }, h("h2", {}, title), body);
  return { element, body };
}
