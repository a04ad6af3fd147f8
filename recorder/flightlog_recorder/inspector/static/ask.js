// Dialogs: each gives what was answered, or null.

import { get, of, post } from "./access.js";
import { fill, h, shown } from "./dom.js";
import { partsOf } from "./parts.js";
import { number } from "./words.js";

const KEYS = [
  ["j k \u2193 \u2191", "one event on, or back"],
  ["PgDn PgUp Home End", "a page; the first, the last"],
  ["e E", "next error; the one before"],
  ["t T", "next tool call; the one before"],
  ["u U", "next user message; the one before"],
  ["/ n N", "search; again; backwards"],
  ["g", "jump to an event"],
  ["1 2 3", "event, what it changed, state"],
  ["l", "follow what comes"],
  ["f y", "fork; family"],
  ["Esc", "back"],
];

// act: what the button does; its result is the answer. An error stays in the dialog.
function ask(title, body, act, label) {
  const { promise, resolve } = Promise.withResolvers?.() ?? resolvers();
  const trouble = h("p", { class: "trouble", role: "alert" });
  const go = label && h("button", { type: "submit", class: "primary" }, label);
  const dialog = h("dialog", { "aria-label": title });
  const form = h(
    "form",
    {
      onsubmit: async (event) => {
        event.preventDefault();
        go.disabled = true;
        try {
          const answer = await act();
          dialog.close();
          resolve(answer);
        } catch (error) {
          fill(trouble, shown(error.message));
        } finally {
          go.disabled = false;
        }
      },
    },
    h("h2", {}, title),
    body,
    trouble,
    h("div", { class: "buttons" }, h("button", { type: "button", onclick: () => dialog.close() }, label ? "Cancel" : "Close"), go),
  );
  dialog.append(form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    resolve(null);
  });
  document.body.append(dialog);
  dialog.showModal();
  return promise;
}

function resolvers() {
  let resolve;
  const promise = new Promise((done) => (resolve = done));
  return { promise, resolve };
}

function field(label, input, hint) {
  return h("label", { class: "field" }, h("span", {}, label), input, hint && h("small", {}, hint));
}

export function askHelp() {
  if (document.querySelector("dialog[open]")) return Promise.resolve(null);
  const rows = KEYS.map(([keys, what]) => [h("dt", {}, keys.split(" ").map((key) => h("kbd", {}, key))), h("dd", {}, what)]);
  return ask("Keys", h("dl", { class: "keys" }, rows));
}

export function askJump(last) {
  const input = h("input", { type: "number", min: "1", max: String(last), required: true, autofocus: true, inputmode: "numeric" });
  return ask("Jump to an event", field(`1 to ${number(last)}`, input), async () => Number(input.value), "Jump");
}

export function askSearch(words = "") {
  const input = h("input", { type: "search", required: true, autofocus: true, maxlength: "200", spellcheck: "false" });
  input.value = words;
  return ask("Search", field("Words, in a text, a name or a type", input), async () => input.value, "Search");
}

export function askFork(session, seq) {
  const at = h("input", { type: "number", min: "1", required: true, inputmode: "numeric" });
  at.value = String(seq);
  const key = h("input", { type: "text", autocomplete: "off", spellcheck: "false" });
  const labels = h("input", { type: "text", placeholder: "name=value name=value", autocomplete: "off", spellcheck: "false" });
  const effects = h("p", { class: "note" });
  const told = async () => {
    const found = await get(of(session, "effects"), { after: at.value });
    fill(effects, shown(found.told || "no external effect lies behind this point"));
  };
  at.addEventListener("change", () => told().catch(() => fill(effects, "")));
  told().catch(() => fill(effects, ""));
  const body = [
    h("p", {}, "A new session begins as a copy of this one's first events. The two never change each other."),
    field("Up to event", at),
    field("Key", key, "optional: with the same key a second fork is the first one"),
    field("Labels", labels, "optional"),
    effects,
  ];
  return ask("Fork", body, async () => {
    const made = await post(of(session, "forks"), { at: Number(at.value), key: key.value || null, labels: labelsOf(labels.value) });
    return made.session;
  }, "Fork");
}

function labelsOf(text) {
  const pairs = text.split(/\s+/).filter(Boolean);
  if (!pairs.every((pair) => /^[^=]+=/.test(pair))) throw new Error("labels are name=value, with spaces between them");
  return Object.fromEntries(pairs.map((pair) => [pair.slice(0, pair.indexOf("=")), pair.slice(pair.indexOf("=") + 1)]));
}

const RULINGS = [
  ["result", "It took effect", "the model gets the result that you give"],
  ["rerun", "Run it again", "with the same idempotency key"],
  ["fail", "Tell the model", "that nobody knows what became of it"],
];

// seq: where the state is that the call waits in.
export function askRuling(session, call, seq) {
  const output = h("textarea", { rows: "4", spellcheck: "false", placeholder: '{"ok": true}' });
  const result = field("Result, as JSON", output);
  const choices = RULINGS.map(([value, title, hint]) => {
    const radio = h("input", { type: "radio", name: "ruling", value, required: true, onchange: () => (result.hidden = value !== "result") });
    return h("label", { class: "choice" }, radio, h("span", {}, h("strong", {}, title), h("small", {}, hint)));
  });
  result.hidden = true;
  const reason = h("input", { type: "text", required: true, autocomplete: "off" });
  const by = h("input", { type: "text", autocomplete: "name" });
  const body = [
    h("p", {}, h("strong", {}, h("bdi", {}, shown(call.name || call.call_id))), ` at ${number(call.seq)}, attempt ${call.attempt}`),
    call.question && h("p", {}, h("bdi", {}, shown(call.question))),
    partsOf(call.arguments, of(session, "states", seq, "text"), call.path),
    h("fieldset", {}, h("legend", {}, "What became of it?"), choices),
    result,
    field("Why", reason, "it is recorded in the log"),
    field("Who decides", by),
  ];
  return ask("Decide", body, () => send(session, call, { output, reason, by }), "Send");
}

async function send(session, call, { output, reason, by }) {
  const ruling = document.querySelector("dialog[open] input[name=ruling]:checked")?.value;
  const told = { call_id: call.call_id, announced_by: call.announced_by, ruling, reason: reason.value, by: by.value };
  if (ruling === "result") told.output = parsed(output.value);
  await post(of(session, "decisions"), told);
  return true;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    throw new Error('the result is not JSON; a text needs quotes: "done"');
  }
}

export function askShown(title, body) {
  return ask(title, body);
}
