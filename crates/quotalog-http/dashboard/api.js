// The public API of the server, as any client may call it.

const ANSWER_MS_MAX = 10_000;

/** Why a call did not succeed. `kind` is the name of its message. */
class Failure extends Error {
  constructor(kind, { status = 0, problem = {}, retryAfterS = 0, requestId = "" } = {}) {
    super(kind);
    this.kind = kind;
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
  return async function call(method, to, { body, headers = {}, signal } = {}) {
    const changes = method !== "GET";
    const fields = new Headers(headers);
    try {
      fields.set("Authorization", `Bearer ${token}`);
    } catch {
      // No token holds what no header can.
      throw new Failure("unauthorized", { status: 401 });
    }
    if (body !== undefined) fields.set("Content-Type", "application/json");
    const timeout = AbortSignal.timeout(ANSWER_MS_MAX);
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
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new Failure(changes ? "lost" : "unreachable");
    }
    setClock(response.headers.get("Date"));
    if (response.ok) return { data, etag: response.headers.get("ETag") };
    const failure = failed(response, data ?? {});
    if (failure.status === 401) onUnauthorized();
    throw failure;
  };
}

function failed(response, problem) {
  const { status } = response;
  const kinds = {
    401: "unauthorized",
    403: "forbidden",
    404: "notFound",
    412: "changed",
    422: "invalid",
    429: "tooMany",
    503: String(problem.type).endsWith("/outcome-unknown") ? "lost" : "unavailable",
  };
  return new Failure(kinds[status] ?? "other", {
    status,
    problem,
    retryAfterS: Number(response.headers.get("Retry-After")) || 0,
    requestId: response.headers.get("X-Request-Id") ?? "",
  });
}

/**
 * What a token may do, found out by what it is answered: `{role}`, and for a user's token `{role, userId}`, where
 * `userId` is null if it is none of `candidates`.
 */
export async function whoIs(token, candidates = []) {
  const call = client(token);
  const may = async (to) => {
    try {
      await call("GET", to);
      return true;
    } catch (failure) {
      if (failure.status === 403) return false;
      throw failure;
    }
  };
  if (await may("quotas?limit=1")) return { role: (await may("tokens?limit=1")) ? "admin" : "viewer" };
  if (await may("defaults?limit=1")) return { role: "service" };
  for (const userId of [...candidates, subject(token)]) {
    if (userId && (await may(`quotas/${path(userId)}?limit=1`))) return { role: "user", userId };
  }
  return { role: "user", userId: null };
}

/** The user that a JWT names; the server decides whether it is true. */
function subject(token) {
  const parts = token.split(".");
  if (parts.length !== 3) return null;
  try {
    const bytes = Uint8Array.from(atob(parts[1].replace(/-/g, "+").replace(/_/g, "/")), (c) => c.charCodeAt(0));
    const { sub } = JSON.parse(new TextDecoder().decode(bytes));
    path(sub);
    return sub;
  } catch {
    return null;
  }
}
