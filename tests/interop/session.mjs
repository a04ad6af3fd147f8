// A session that this process writes: opened, fenced against older writers, folded as it grows.

import { randomBytes } from "node:crypto";
import { Fenced } from "./log.mjs";

const OPENS = new Set(["session_started", "session_resumed", "session_reopened"]);
const HARNESS = "node/1";

/** Start or resume the session of a key; from the ack on every older writer is fenced. */
export async function openSession(log, key) {
  const id = await log.claim(key);
  for (;;) {
    const session = new Session(log, id, await log.read(id));
    try {
      await session.own(key);
      return session;
    } catch (error) {
      if (!(error instanceof Fenced)) throw error;
      const { chain } = await log.read(id);
      if (chain.slice(session.seq).some((event) => OPENS.has(event.type))) throw error;
    }
  }
}

class Session {
  constructor(log, id, { chain, digest, last }) {
    Object.assign(this, { log, id, digest, last, seq: 0, writer: 0, events: [] });
    chain.forEach((event) => this.#apply(event));
  }

  get ended() {
    return this.events.at(-1)?.type === "session_ended";
  }

  /** The calls that have started and have no result: what a crash leaves. */
  get inFlight() {
    const open = new Map();
    for (const event of this.events) {
      if (event.type === "tool_call") open.set(nameOf(event.payload), event);
      if (event.type === "tool_result") open.delete(nameOf(event.payload));
    }
    return [...open.values()];
  }

  async own(key) {
    if (this.ended) return;
    const writer = { number: this.writer + 1, id: randomBytes(16).toString("hex") };
    if (this.seq === 0) {
      await this.append("session_started", { writer, key, labels: { language: "node" } });
      return;
    }
    const inFlight = this.inFlight.map(({ payload: { call_id, announced_by } }) => ({ call_id, announced_by }));
    await this.append("session_resumed", { writer, in_flight: inFlight });
    for (const call of this.inFlight) await this.#rule(call);
  }

  /** Append one event and wait for its ack: nothing may be seen before. */
  async append(type, payload, parent = this.seq) {
    const event = {
      v: 1,
      session_id: this.id,
      seq: this.seq + 1,
      ts: new Date().toISOString().replace("Z", "000Z"),
      type,
      payload,
      parent_seq: parent || null,
      harness_version: HARNESS,
      prev: this.digest,
    };
    const { sequence, digest } = await this.log.append(this.id, event, this.last);
    Object.assign(this, { last: sequence, digest });
    return this.#apply(event);
  }

  /** What becomes of a call whose process is gone: its own policy says. */
  async #rule({ seq, payload: { call_id, announced_by, on_resume } }) {
    const call = { call_id, announced_by };
    if (on_resume === "rerun") {
      await this.append("decision_made", { call, ruling: "rerun", by: "policy" });
    } else if (on_resume === "fail") {
      await this.append("decision_made", { call, ruling: "fail", by: "policy" });
      const output = "It is not known whether this call took effect.";
      await this.append("tool_result", { ...call, outcome: "unknown", output, resolved_by: "policy" }, seq);
    } else {
      await this.append("decision_requested", { call });
    }
  }

  #apply(event) {
    this.seq = event.seq;
    this.writer = event.payload.writer?.number ?? this.writer;
    this.events.push(event);
    return event;
  }
}

export const nameOf = ({ announced_by, call_id }) => `${announced_by}/${call_id}`;
