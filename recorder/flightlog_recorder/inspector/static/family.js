// The family of a session as a tree: forks and sub-agents.

import { get, of } from "./access.js";
import { askShown } from "./ask.js";
import { h, plain, shown, toast } from "./dom.js";
import { ago, number } from "./words.js";

// Gives the path of the member that was chosen, or null.
export async function familyOf(session) {
  let found;
  try {
    found = await get(of(session, "family"));
  } catch (error) {
    toast(error.message);
    return null;
  }
  let chosen = null;
  const choose = (path) => {
    chosen = path;
    document.querySelector("dialog[open]")?.close();
  };
  const known = new Set(found.members.map((member) => member.session));
  const roots = found.members.filter((member) => !known.has(member.origin));
  const body = [
    branch(roots, found, choose),
    !found.whole && h("p", { class: "note" }, "The catalog was looked through in part: there may be others."),
  ];
  await askShown("Family", body);
  return chosen;
}

function branch(members, family, choose) {
  return h("ul", { class: "tree" }, members.map((member) => {
    const children = family.members.filter((each) => each.origin === member.session);
    return h("li", {}, memberOf(member, family, choose), children.length > 0 && branch(children, family, choose));
  }));
}

function memberOf(member, family, choose) {
  const how = member.how === "fork" ? `forked at ${number(member.seq)}` : member.how === "child" ? `called at ${number(member.seq ?? 0)}` : "";
  const path = `/sessions/${encodeURIComponent(member.session)}`;
  const here = member.session === family.session;
  return h(
    "span",
    { class: `member${here ? " here" : ""}` },
    h("a", { href: path, "aria-current": here ? "true" : undefined, onclick: (event) => { event.preventDefault(); choose(path); } }, h("bdi", {}, shown(plain(member.key ?? member.session, 80)))),
    member.status ? h("span", { class: `status ${member.status}` }, member.status) : h("span", { class: "note" }, "not in the catalog"),
    how && h("span", { class: "note" }, how),
    member.last_ts && h("span", { class: "note" }, ago(member.last_ts)),
  );
}
