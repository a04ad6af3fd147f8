// A harness on Node: asks a scripted model, runs the call that it wants, ends. Starts and resumes.
//
// node agent.mjs URL TENANT KEY [--die-after TYPE] [--hold-after TYPE]
// The tool writes a line to standard output each time it runs. Exit code 4: another writer has the
// session, 5: a person must decide first.

import { once } from "node:events";
import { parseArgs } from "node:util";
import { connect } from "@nats-io/transport-node";
import { Fenced, openLog, sha256 } from "./log.mjs";
import { nameOf, openSession } from "./session.mjs";

const BEAT = 5000; // milliseconds
const VIEW = "anthropic/1";
const PARAMS = { system: "You weigh things: “exactly”.", max_tokens: 64 };

const { values: options, positionals: [url, tenant, key] } = parseArgs({
  allowPositionals: true,
  options: { "die-after": { type: "string" }, "hold-after": { type: "string" } },
});

/** What the model says: first a call, and once there is a result the answer. */
function model({ messages }) {
  const answered = messages.some(({ content }) => Array.isArray(content) && content[0].type === "tool_result");
  const content = answered
    ? [{ type: "text", text: "It weighs 12 kg — done ✓" }]
    : [{ type: "tool_use", id: "call_1", name: "weigh", input: { what: "the parcel" } }];
  const stop_reason = answered ? "end_turn" : "tool_use";
  return { id: "msg", role: "assistant", content, stop_reason, usage: { input_tokens: 7, output_tokens: 3 } };
}

/** What is to be sent next, and which of it the log can already derive (D in docs/wire.md). */
function contextOf(events) {
  const messages = [];
  for (const { type, payload } of events) {
    if (type === "user_message") messages.push({ role: "user", content: payload.content });
    if (type === "model_response") messages.push({ role: "assistant", content: payload.message.content });
    if (type === "tool_result") {
      const block = { type: "tool_result", tool_use_id: payload.call_id, content: payload.output };
      messages.push({ role: "user", content: [block] });
    }
  }
  return messages;
}

async function callModel(s) {
  const request = { model: "scripted", ...PARAMS, messages: contextOf(s.events) };
  const digest = sha256(JSON.stringify(request));
  const first = !s.events.some(({ type }) => type === "model_request");
  const asked = await s.append("model_request", {
    model: request.model,
    context: { upto: s.seq, digest, edits: [], view: VIEW, marks: [] },
    ...(first ? { params: PARAMS, order: Object.keys(request) } : {}),
  });
  const { usage, stop_reason, ...message } = model(request);
  await s.append("model_response", { message, usage, stop: stop_reason }, asked.seq);
}

async function runTool(s, call, attempt) {
  const started = await s.append("tool_call", { ...call, attempt, on_resume: "rerun", effect: "read" });
  console.log(JSON.stringify({ ran: call.call_id, attempt }));
  const { call_id, announced_by } = call;
  await s.append("tool_result", { call_id, announced_by, output: `${call.arguments.what}: 12 kg` }, started.seq);
}

/** The calls that the model asked for and that have no result, with the attempts made so far. */
function owed(events) {
  const calls = new Map();
  for (const { type, seq, payload } of events) {
    if (type === "model_response") {
      for (const block of payload.message.content.filter((each) => each.type === "tool_use")) {
        const call = { name: block.name, call_id: block.id, announced_by: seq, arguments: block.input };
        calls.set(nameOf(call), { call, attempts: 0 });
      }
    }
    if (type === "tool_call") calls.get(nameOf(payload)).attempts += 1;
    if (type === "tool_result") calls.delete(nameOf(payload));
  }
  return [...calls.values()];
}

async function live(s) {
  if (s.seq === 1) await s.append("user_message", { content: "How heavy is the parcel? <&> \u2028" });
  while (!s.ended) {
    const calls = owed(s.events);
    if (s.events.some(({ type }) => type === "decision_requested") && calls.length) return 5;
    for (const { call, attempts } of calls) await runTool(s, call, attempts + 1);
    const last = s.events.findLast(({ type }) => type === "model_response");
    if (last?.payload.stop === "end_turn") await s.append("session_ended", { status: "completed" });
    else await callModel(s);
  }
  return 0;
}

/** Die, or wait for a line on standard input, when an event of that type has been stored. */
function interrupted(append) {
  return async function interruptible(type, ...rest) {
    const event = await append.call(this, type, ...rest);
    if (type === options["die-after"]) process.kill(process.pid, "SIGKILL");
    if (type === options["hold-after"]) {
      console.log(JSON.stringify({ held: event.seq }));
      await once(process.stdin, "data");
    }
    return event;
  };
}

const { host, username } = new URL(url);
const nc = await connect({ servers: host, ...(username ? { token: username } : {}) });
const log = await openLog(nc, tenant);
let code = 0;
try {
  const session = await openSession(log, key);
  session.append = interrupted(session.append);
  const beats = setInterval(() => log.beat(`node:${process.pid}`, session.id), BEAT);
  code = await live(session).finally(() => clearInterval(beats));
} catch (error) {
  if (!(error instanceof Fenced)) throw error;
  console.error(error.message);
  code = 4;
}
await nc.close();
process.exit(code);
