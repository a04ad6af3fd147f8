// A row of the timeline: its lanes, what happened, how long it took.

import { h, shown } from "./dom.js";
import { clock, number, seconds } from "./words.js";

const LANES = 6; // that are drawn; the timeline knows of more

export function rowOf(seq, row) {
  if (!row) return [h("span", { class: "seq" }, number(seq)), h("span", { class: "waits" })];
  if (row.failed) return [h("span", { class: "seq" }, number(seq)), h("span", { class: "text" }, "could not be read")];
  return [
    h("span", { class: "seq" }, number(seq)),
    h("span", { class: "time" }, shown(clock(row.ts))),
    lanes(row),
    h("span", { class: `type ${row.kind}${row.turn ? " turn" : ""}` }, shown(row.type.slice(0, 60).replaceAll("_", " "))),
    h("bdi", { class: `text${row.error ? " error" : ""}` }, row.mark === "crash" && h("span", { class: "mark crash", title: "the process before this one left no word" }, "crash"), row.effect && h("span", { class: "effect", title: "not read-only: no fork undoes it" }, "\u2197 "), shown(row.text ?? "")),
    h("span", { class: "took" }, row.took === undefined || row.took === null ? "" : seconds(row.took)),
  ];
}

function lanes(row) {
  const letters = (row.lanes ?? "").slice(0, LANES);
  const drawn = [...letters].map((letter, at) => h("i", { class: `lane ${letter === "." ? "none" : letter} c${at}${row.lane === at ? " here" : ""}` }));
  return h("span", { class: "lanes", "aria-hidden": "true" }, drawn);
}
