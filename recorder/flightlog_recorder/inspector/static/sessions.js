// The sessions of the tenant: filtered, latest first, loaded as one scrolls.

import { get } from "./access.js";
import { fill, h, plain, say, shown, toast } from "./dom.js";
import { List } from "./list.js";
import { ago, dollars, number, plural } from "./words.js";

const STATUSES = ["running", "suspended", "completed", "failed", "cancelled"];
const REFRESH = 3_000; // milliseconds
const PAGE = 200;

export class SessionsView {
  constructor(go) {
    this.go = go;
    this.rows = [];
    this.after = null;
    this.soon = {};
    const query = new URLSearchParams(location.search);
    this.filter = {
      status: query.get("status") ?? "",
      waiting: query.get("waiting") ?? "",
      key: query.get("key") ?? "",
      label: query.get("label") ?? "",
      damaged: query.get("damaged") ?? "",
      stalled: query.get("stalled") ?? "",
    };
    this.list = new List({
      label: "Sessions",
      row: matchMedia("(max-width: 720px)").matches ? 64 : 44,
      render: (index) => this.row(this.rows[index]),
      named: (index) => this.named(this.rows[index]),
      opened: (index) => this.opened(index),
      seen: (_, last) => this.seen(last),
    });
    this.note = h("p", { class: "note" });
    this.element = h(
      "section",
      { class: "sessions", "aria-label": "Sessions" },
      h("h1", { class: "hidden" }, "Sessions"),
      this.filters(),
      h("div", { class: "heads", "aria-hidden": "true" }, ["status", "session", "labels", "events", "tokens", "cost", "active"].map((name) => h("span", {}, name))),
      this.list.element,
      this.note,
    );
  }

  filters() {
    const status = h(
      "select",
      { "aria-label": "Status", onchange: () => this.set("status", status.value) },
      h("option", { value: "" }, "any status"),
      STATUSES.map((word) => h("option", { value: word }, word)),
    );
    status.value = this.filter.status;
    this.search = this.field("key", "Key begins with, or a session's id", "key, or id\u2026");
    return h(
      "form",
      { class: "filters", role: "search", "aria-label": "Which sessions", onsubmit: (event) => event.preventDefault() },
      this.search,
      this.field("label", "Label, as name=value", "label=value"),
      status,
      this.check("waiting", "decide", "asks for a decision"),
      this.check("stalled", "1", "stalled"),
      this.check("damaged", "1", "damaged"),
      (this.total = h("span", { class: "total" })),
    );
  }

  check(name, value, label) {
    const input = h("input", { type: "checkbox", onchange: () => this.set(name, input.checked ? value : "") });
    input.checked = this.filter[name] === value;
    return h("label", { class: "check" }, input, label);
  }

  // An id that was typed, or pasted, opens its session; the catalog need not know of it.
  asked() {
    const words = this.search.value.trim();
    if (words.startsWith("sess_")) this.go(`/sessions/${encodeURIComponent(words)}`);
    else if (this.rows.length === 1) this.opened(0);
  }

  field(name, label, placeholder) {
    const input = h("input", {
      type: "search",
      "aria-label": label,
      placeholder,
      autocomplete: "off",
      spellcheck: "false",
      onkeydown: (event) => event.key === "Enter" && this.asked(),
      oninput: () => {
        clearTimeout(this.soon[name]);
        this.soon[name] = setTimeout(() => this.set(name, input.value.trim()), 200);
      },
    });
    input.value = this.filter[name];
    return input;
  }

  set(name, value) {
    this.filter[name] = value;
    const words = new URLSearchParams(Object.entries(this.filter).filter(([, text]) => text));
    this.go(words.size ? `/?${words}` : "/", { replace: true });
    this.load().catch((error) => this.failed(error));
  }

  get query() {
    const { label, ...rest } = this.filter;
    const [name, ...value] = label.split("=");
    return label.includes("=") && name ? { ...rest, [`label.${name}`]: value.join("=") } : rest;
  }

  async start() {
    await this.load();
    this.list.choose(0);
    this.list.element.focus({ preventScroll: true });
    this.timer = setInterval(() => this.refresh(), REFRESH);
  }

  async load() {
    this.loading?.abort();
    this.loading = new AbortController();
    const { signal } = this.loading;
    const page = await get("/api/sessions", { ...this.query, limit: PAGE }, { signal });
    this.take(page, []);
    this.list.element.scrollTop = 0;
    say(`${plural(this.rows.length, "session")}${this.after ? " and more" : ""}`);
  }

  take(page, before) {
    const known = new Set(before.map((row) => row.session));
    this.rows = [...before, ...page.sessions.filter((row) => !known.has(row.session))];
    this.after = page.after;
    document.getElementById("crumbs").replaceChildren(h("span", {}, shown(page.tenant)));
    this.list.setCount(this.rows.length);
    this.total.textContent = `${number(this.rows.length)}${this.after ? "+" : ""}`;
    const narrow = Object.values(this.filter).some(Boolean);
    const none = narrow ? "No session is like that." : [`Tenant ${page.tenant} has no sessions yet: run an agent, and they appear here. `, h("br"), "Another tenant's are shown by flightlog --tenant NAME inspect."];
    const building = page.rebuilding.length ? "The catalog is being rebuilt: sessions may be missing." : "";
    const many = page.partial ? "More keys begin like that than are looked at: type more of it." : "";
    fill(this.note, this.rows.length ? [many, building].filter(Boolean).join(" ") : none);
  }

  async seen(last) {
    if (!this.after || this.more || last < this.rows.length - 40) return;
    this.more = true;
    const query = this.query;
    try {
      const page = await get("/api/sessions", { ...query, after: this.after, limit: PAGE });
      if (JSON.stringify(query) === JSON.stringify(this.query)) this.take(page, this.rows);
    } catch (error) {
      toast(error.message);
    } finally {
      this.more = false;
    }
  }

  async refresh() {
    if (document.hidden || this.more || this.list.element.scrollTop > 0 || this.rows.length > PAGE) return;
    try {
      const page = await get("/api/sessions", { ...this.query, limit: PAGE });
      const chosen = this.rows[this.list.at]?.session;
      this.take(page, []);
      if (chosen) this.list.at = this.rows.findIndex((row) => row.session === chosen);
      this.list.refresh();
      this.was = undefined;
    } catch (error) {
      if (this.was !== error.message) toast(error.message);
      this.was = error.message;
    }
  }

  // What the figures of a row are, for who does not see the heads of the columns.
  named(row) {
    const told = [
      plain(row.key ?? row.session, 120),
      statusOf(row),
      plural(row.seq, "event"),
      usedBy(row) && plural(usedBy(row), "token"),
      dollars(row.cost),
      row.last_ts && `active ${ago(row.last_ts)}`,
      ...Object.entries(row.labels ?? {}).slice(0, 6).map(([name, value]) => plain(`${name}=${value}`, 60)),
    ];
    return told.filter(Boolean).join(", ");
  }

  row(row) {
    const [status, used] = [statusOf(row), usedBy(row)];
    const labels = Object.entries(row.labels ?? {});
    return [
      h("span", { class: `status ${status}` }, status),
      h("span", { class: "name" }, h("bdi", { class: "key" }, shown(row.key ?? row.session)), row.key !== null && h("span", { class: "id" }, row.session)),
      h("span", { class: "labels" }, labels.slice(0, 6).map(([name, value]) => h("bdi", { class: "chip" }, shown(plain(`${name}=${value}`, 60))))),
      h("span", { class: "figure" }, number(row.seq)),
      h("span", { class: "figure" }, used ? number(used) : ""),
      h("span", { class: "figure cost" }, dollars(row.cost)),
      h("span", { class: "figure" }, row.last_ts ? ago(row.last_ts) : ""),
    ];
  }

  opened(index) {
    const row = this.rows[index];
    if (row) this.go(`/sessions/${encodeURIComponent(row.session)}`);
  }

  key(event) {
    const { list } = this;
    if (event.key === "ArrowDown" || event.key === "j") list.move(1);
    else if (event.key === "ArrowUp" || event.key === "k") list.move(-1);
    else if (event.key === "PageDown") list.move(list.page);
    else if (event.key === "PageUp") list.move(-list.page);
    else if (event.key === "Home") list.choose(0);
    else if (event.key === "End") list.choose(list.count - 1);
    else if (event.key === "Enter" && list.at >= 0 && event.target === list.element) this.opened(list.at);
    else if (event.key === "/") this.search.focus();
    else return false;
    return true;
  }

  failed(error) {
    if (error.name === "AbortError") return;
    this.rows = [];
    this.list.setCount(0);
    fill(this.note, shown(error.message));
  }

  close() {
    Object.values(this.soon).forEach(clearTimeout);
    clearInterval(this.timer);
    this.loading?.abort();
    this.list.close();
  }
}

function statusOf(row) {
  const asks = row.waiting === "decide" && ["running", "suspended"].includes(row.status);
  return row.trouble ? "damaged" : row.stalled ? "stalled" : asks ? "asks" : row.status;
}

function usedBy(row) {
  return Object.values(row.usage ?? {}).reduce((sum, each) => sum + each, 0);
}
