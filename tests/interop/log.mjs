// The log of one session: its events read and proved, its next ones appended. From docs/wire.md.

import { createHash, randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { jetstream, jetstreamManager, JetStreamApiError } from "@nats-io/jetstream";
import { headers } from "@nats-io/transport-node";

const PREFIX = "flightlog.v1";
const KEYS = "KV_FLIGHTLOG_keys";
const WRONG_EXPECTATION = 10071;
const NOTHING_THERE = 404;
const PAGE = 256; // messages a direct get
const AGAIN = 250; // milliseconds before the same bytes are sent once more
const TRIES = 100;

export class Fenced extends Error {}

export const sha256 = (data) => createHash("sha256").update(data).digest("hex");

/** The log of a tenant, over an open connection. */
export async function openLog(nc, tenant) {
  const manager = await jetstreamManager(nc);
  return new Log(nc, jetstream(nc), manager, tenant);
}

class Log {
  constructor(nc, js, manager, tenant) {
    Object.assign(this, { nc, js, manager, tenant });
  }

  /** The id that a key stands for: ours if we are the first, for ever. */
  async claim(key) {
    const subject = `$KV.FLIGHTLOG_keys.${this.tenant}.${base32(createHash("sha256").update(key).digest())}`;
    const entry = JSON.stringify({ id: mint(), made_by: "session" });
    try {
      await this.js.publish(subject, entry, { expect: { lastSubjectSequence: 0 } });
    } catch (error) {
      if (error.code !== WRONG_EXPECTATION) throw error;
    }
    const stored = await this.manager.streams.getMessage(KEYS, { last_by_subj: subject });
    return stored.json().id;
  }

  /** The session's events in order, each one proved to follow the one before it. */
  async read(session) {
    const base = await this.#part(session, "base");
    const live = await this.#part(session, "live");
    const chain = [];
    for (const message of [...base, ...live]) {
      const event = JSON.parse(message.string());
      if (event.seq !== undefined) link(chain, { event, digest: sha256(message.data) });
    }
    const digest = chain.at(-1)?.digest ?? null;
    return { chain: chain.map(({ event }) => event), digest, last: live.at(-1)?.seq ?? 0 };
  }

  /** Append a body under expectation until its fate is known; its stream sequence. */
  async append(session, event, expected) {
    const subject = subjectOf(this.tenant, session, "live");
    const body = Buffer.from(JSON.stringify(event));
    for (let tries = 0; tries < TRIES; tries += 1) {
      try {
        const options = { headers: headersOf(event), expect: { lastSubjectSequence: expected }, retries: 0 };
        return { sequence: (await this.js.publish(subject, body, options)).seq, digest: sha256(body) };
      } catch (error) {
        if (error instanceof JetStreamApiError && error.code === WRONG_EXPECTATION) {
          return this.#judged(session, subject, body, expected);
        }
      }
      await sleep(AGAIN); // nobody knows: the same bytes again
    }
    throw new Error(`session ${session}: the broker does not answer`);
  }

  /** What took the place: our own bytes, stored by a try whose ack was lost, or another writer's. */
  async #judged(session, subject, body, expected) {
    const stream = await this.#stream(session);
    const query = { seq: expected + 1, next_by_subj: subject };
    let stored = await this.manager.direct.getMessage(stream, query);
    while (stored === null) {
      await sleep(AGAIN); // a replica that lags
      stored = await this.manager.direct.getMessage(stream, query);
    }
    if (!body.equals(stored.data)) throw new Fenced(`session ${session} has another writer`);
    return { sequence: stored.seq, digest: sha256(body) };
  }

  /** All messages of a part; a page behind the last of them is answered with 404. */
  async #part(session, part) {
    const subject = subjectOf(this.tenant, session, part);
    const stream = await this.#stream(session);
    const messages = [];
    for (;;) {
      const query = { seq: (messages.at(-1)?.seq ?? 0) + 1, next_by_subj: subject, batch: PAGE };
      try {
        for await (const message of await this.manager.direct.getBatch(stream, query)) {
          messages.push(message);
        }
      } catch (error) {
        if (error.code !== NOTHING_THERE) throw error;
        return messages;
      }
    }
  }

  async #stream(session) {
    return this.manager.streams.find(subjectOf(this.tenant, session, "live"));
  }

  /** Say that this process writes the session. A hint, never a fence. */
  beat(process, session) {
    this.nc.publish(`${PREFIX}.alive.${this.tenant}`, JSON.stringify({ process, all: [session] }));
  }
}

/** Put an event behind the one it follows. Of two that follow one, the higher writer's counts. */
function link(chain, { event, digest }) {
  const at = event.prev === null ? 0 : chain.findLastIndex((each) => each.digest === event.prev) + 1;
  const follows = event.seq === at + 1 && (at > 0 || event.prev === null);
  const rival = chain[at]?.event;
  if (follows && (rival === undefined || numberOf(event) > numberOf(rival))) {
    chain.splice(at, chain.length, { event, digest });
  }
}

const numberOf = (event) => event.payload.writer?.number ?? 0;

function headersOf({ type, seq, payload }) {
  const found = headers();
  found.set("Flightlog-Type", type);
  found.set("Flightlog-Seq", String(seq));
  if (payload.writer) found.set("Flightlog-Writer", String(payload.writer.number));
  return found;
}

function subjectOf(tenant, session, part) {
  return `${PREFIX}.${slot(session)}.${tenant}.${session}.${part}`;
}

/** The 64th part of all sessions that this one belongs to: NATS' own partition function. */
function slot(session) {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(session)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash % 64;
}

function base32(bytes) {
  const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
  const bits = [...bytes].map((byte) => byte.toString(2).padStart(8, "0")).join("");
  return bits.match(/.{1,5}/g).map((five) => alphabet[parseInt(five.padEnd(5, "0"), 2)]).join("");
}

/** `sess_` and a UUIDv7 in hex. */
function mint() {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6] & 0x0f) | 0x70;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  return `sess_${bytes.toString("hex")}`;
}
