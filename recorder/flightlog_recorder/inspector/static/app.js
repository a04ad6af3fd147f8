// The page: which view is shown, and what the keys do.

import { enter } from "./access.js";
import { fill, h, toast } from "./dom.js";
import { askHelp } from "./ask.js";
import { SessionView } from "./session.js";
import { SessionsView } from "./sessions.js";

const main = document.getElementById("main");
let view;

export function go(path, { replace = false } = {}) {
  if (path !== location.pathname + location.search) {
    history[replace ? "replaceState" : "pushState"](null, "", path);
  }
  if (!replace) open();
}

function named(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // no UTF-8: no session is called so
  }
}

function open() {
  view?.close();
  const found = /^\/sessions\/([^/]+)(?:\/(\d+))?$/.exec(location.pathname);
  const session = found && named(found[1]);
  document.title = session ? `${session.slice(0, 18)} \u00b7 Flightlog` : "Flightlog";
  fill(document.getElementById("crumbs"), session ? h("span", {}, "session") : h("span", {}, "sessions"));
  view = session ? new SessionView(session, found[2] && Number(found[2]), go) : new SessionsView(go);
  fill(main, view.element);
  view.start().catch(failed);
}

function failed(error) {
  if (error.status === 401) {
    fill(
      main,
      h("section", { class: "empty" }, h("h1", {}, "Who is there?"), h("p", {}, error.message)),
    );
  } else if (view?.failed) view.failed(error);
  else toast(error.message);
}

function typing(target) {
  return target.closest("input:not([type=range]), textarea, select, dialog[open]");
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (typing(event.target)) {
    if (event.key === "Escape" && !event.target.closest("dialog")) event.target.blur();
    return;
  }
  if (event.key === "?") askHelp();
  else if (!view?.key(event)) return;
  event.preventDefault();
});

document.getElementById("help").addEventListener("click", askHelp);
document.getElementById("home").addEventListener("click", (event) => {
  event.preventDefault();
  go("/");
});
window.addEventListener("popstate", open);
window.addEventListener("unhandledrejection", (event) => {
  if (event.reason?.name === "AbortError") event.preventDefault();
});

enter().then(open, failed);
