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
    found.why && h("p", { class: "note" }, shown(found.why)),
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

function cameBy({ how, seq, by }) {
  const at = seq === undefined ? "" : ` at ${number(seq)}`;
  if (how === "fork") return `forked${at}`;
  if (how === "child") return `called${at}${by ? ` by ${by}` : ""}`;
  return how === "import" ? `imported from ${by}` : "";
}

function memberOf(member, family, choose) {
  const how = cameBy(member);
  const labels = Object.entries(member.labels ?? {}).slice(0, 6);
  const path = `/sessions/${encodeURIComponent(member.session)}`;
  const here = member.session === family.session;
  return h(
    "span",
    { class: `member${here ? " here" : ""}` },
    h("a", { href: path, "aria-current": here ? "true" : undefined, onclick: (event) => { event.preventDefault(); choose(path); } }, h("bdi", {}, shown(plain(member.key ?? member.session, 80)))),
    member.status ? h("span", { class: `status ${member.status}` }, member.status) : h("span", { class: "note" }, "not in the catalog"),
    how && h("bdi", { class: "note" }, shown(plain(how, 120))),
    labels.map(([name, value]) => h("bdi", { class: "chip" }, shown(plain(`${name}=${value}`, 60)))),
    member.last_ts && h("span", { class: "note" }, ago(member.last_ts)),
  );
}
