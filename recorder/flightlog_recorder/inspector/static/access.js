// The token comes in the address' fragment, which no server ever sees; it is exchanged for a cookie.

export class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

export async function enter() {
  const found = /(?:^#|&)token=([^&]+)/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", location.pathname + location.search);
  await asked("/api/enter", {
    method: "POST",
    headers: { "flightlog-token": decodeURIComponent(found[1]), "flightlog-write": "1" },
  });
}

export function get(path, query = {}, { signal } = {}) {
  return asked(address(path, query), { signal });
}

export function post(path, body) {
  return asked(path, {
    method: "POST",
    headers: { "content-type": "application/json", "flightlog-write": "1" },
    body: JSON.stringify(body),
  });
}

export async function getText(path, query = {}) {
  const response = await fetch(address(path, query), { credentials: "same-origin" });
  if (!response.ok) throw await refused(response);
  return response.text();
}

export function address(path, query = {}) {
  const words = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") words.set(name, value);
  }
  const text = words.toString();
  return text ? `${path}?${text}` : path;
}

export function of(session, ...rest) {
  return ["/api/sessions", encodeURIComponent(session), ...rest].join("/");
}

async function asked(path, options) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused(0, "the inspector does not answer; is it still running?");
  }
  if (!response.ok) throw await refused(response);
  return response.status === 204 ? null : response.json();
}

async function refused(response) {
  try {
    return new Refused(response.status, (await response.json()).error);
  } catch {
    return new Refused(response.status, `the inspector answered ${response.status}`);
  }
}
