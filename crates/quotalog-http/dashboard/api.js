// The public API of the server, as any client may call it.

const ANSWER_MS_MAX = 10_000;

/** Why a call did not succeed. `kind` is the name of its message. */
class Failure extends Error {
  constructor(kind, { changes = false, status = 0, problem = {}, retryAfterS = 0, requestId = "" } = {}) {
    super(kind);
    this.kind = kind;
    this.changes = changes;
    this.status = status;
    this.errors = Array.isArray(problem.errors) ? problem.errors : [];
    this.retryAfterS = retryAfterS;
    this.requestId = requestId;
  }
}

// How far the server's clock is ahead of ours. Its answers are dated to the second, so small differences are none.
let clockAheadMs = 0;

/** The server's time, whose windows count. */
export const now = () => Date.now() + clockAheadMs;

function setClock(date) {
  const aheadMs = Date.parse(date) + 500 - Date.now();
  if (Math.abs(aheadMs - clockAheadMs) > 1_500) clockAheadMs = aheadMs;
}

/** A path of ids. A browser would read "." and ".." as steps, and they are no ids; nor is what holds a "/". */
export function path(...segments) {
  for (const segment of segments) {
    if (segment === "" || segment === "." || segment === ".." || segment.includes("/")) {
      throw new Failure("noId");
    }
  }
  return segments.map((segment) => encodeURIComponent(segment.toWellFormed())).join("/");
}

/** What follows a path: the parameters that have a value. */
export function query(parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value != null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
}

/** Something that calls with `token`. `onUnauthorized` is told when the server does not know it. */
export function client(token, onUnauthorized = () => {}) {
  return async function call(method, to, { body, headers = {}, signal, patienceMs = ANSWER_MS_MAX } = {}) {
    const changes = method !== "GET";
    const fields = new Headers(headers);
    try {
      fields.set("Authorization", `Bearer ${token}`);
    } catch {
      // No token holds what no header can.
      throw new Failure("unauthorized", { status: 401 });
    }
    if (body !== undefined) fields.set("Content-Type", "application/json");
    const timeout = AbortSignal.timeout(patienceMs);
    let response, data;
    try {
      response = await fetch(to, {
        method,
        headers: fields,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
      const text = await response.text();
      const isJson = /\bjson\b/.test(response.headers.get("Content-Type") ?? "");
      data = isJson && text ? JSON.parse(text) : null;
      // Such as the page of a proxy that wants somebody to sign in there.
      if (response.ok && response.status !== 204 && data === null) throw new TypeError("an answer of somebody else");
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Failure(changes ? "lost" : "unreachable", { changes });
    }
    setClock(response.headers.get("Date"));
    if (response.ok) return { data, etag: response.headers.get("ETag") };
    const failure = failed(response, data ?? {}, changes);
    if (failure.status === 401) onUnauthorized();
    throw failure;
  };
}

function failed(response, problem, changes) {
  const { status } = response;
  // What a proxy says when it had no answer.
  const unanswered = changes ? "lost" : "unreachable";
  const kinds = {
    401: "unauthorized",
    403: "forbidden",
    404: "notFound",
    412: "changed",
    422: "invalid",
    429: "tooMany",
    502: unanswered,
    504: unanswered,
    503: String(problem.type).endsWith("/outcome-unknown") ? "lost" : "unavailable",
  };
  return new Failure(kinds[status] ?? "other", {
    changes,
    status,
    problem,
    retryAfterS: Number(response.headers.get("Retry-After")) || 0,
    requestId: response.headers.get("X-Request-Id") ?? "",
  });
}

/** What a token may do: `{role, userId}`, where `userId` is null unless the role is a user's. */
export async function whoIs(token) {
  const { data } = await client(token)("GET", "whoami");
  return { role: data.role, userId: data.user_id };
}
