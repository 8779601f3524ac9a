/**
 * A client of quotalog, in one file. It needs Node 18.17 or newer, or what knows `fetch` and `node:crypto`; copy it, under
 * MIT or Apache-2.0 as you choose. Nothing has to be built where types are stripped (Node 22.18 and newer, Deno, Bun).
 *
 *     const quotalog = new Client("http://127.0.0.1:8200", token);
 *     try {
 *       const { remaining } = await quotalog.consume("alice", "api-calls");
 *     } catch (error) {
 *       if (error instanceof Exhausted) return new Response(null, { status: 429, headers: { "Retry-After": `${error.retryAfter}` } });
 *       if (error instanceof Outage) ...  // quotalog is away: go on or refuse, as you choose.
 *     }
 *
 * A call is repeated while that is safe and its deadline has not come; whatever it may have counted already, it counts
 * once, since all attempts bear one idempotency key. What becomes of each answer is in docs/clients.md.
 */

import { randomUUID } from "node:crypto";

const ATTEMPTS_MAX = 8;
const PAUSE_FIRST_MS = 50;
const PAUSE_MAX_MS = 2_000;
/** No wait is longer, whatever an answer says; nor can a timer wait much longer. */
const RETRY_AFTER_MAX_S = 2_000_000;
/** The problems of a request that the server would not take another time either. */
const NEVER_TAKEN = ["400 malformed-request", "413 content-too-large", "422 validation-failed", "422 idempotency-mismatch"];
/** Why there was no connection to send anything on. */
const NOT_SENT = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

/** The server's own object. */
export interface Quota {
  user_id: string;
  resource: string;
  window: "hourly" | "daily";
  limit_count: number;
  usage: number;
  remaining: number;
  allowed: boolean;
  window_start: string;
  reset_at: string;
  source: "policy" | "default";
  created_at: string;
  updated_at: string;
}

export interface Item {
  user_id: string;
  resource: string;
  amount?: number;
}

export interface Denial {
  amount?: number;
  allowed: boolean;
  quota: Quota;
}

export interface Options {
  /** A key of the caller's, if it may ask again itself. */
  key?: string;
  /** A 429 is waited for and asked again, as long as the deadline allows. */
  wait?: boolean;
}

/** A problem document (RFC 9457). */
type Problem = Record<string, unknown>;

/** No units can be taken for granted. What is thrown is one of those below. */
export class QuotalogError extends Error {
  /** Of the answer; undefined without one. */
  readonly status: number | undefined;
  readonly problem: Problem;
  /** In whole seconds; undefined if the server did not say. */
  readonly retryAfter: number | undefined;

  constructor(message: string, status?: number, problem: Problem = {}, retryAfter?: number, cause?: unknown) {
    super(message, { cause });
    this.name = new.target.name;
    this.status = status;
    this.problem = problem;
    this.retryAfter = retryAfter;
  }
}

/** The units do not fit into what is left, and nothing was counted. After `retryAfter` seconds they may. */
export class Exhausted extends QuotalogError {
  /** What was asked for, in order. */
  get items(): Denial[] {
    const single = { allowed: false, quota: this.problem as unknown as Quota };
    return (this.problem.items as Denial[] | undefined) ?? [single];
  }

  /** The quota that did not fit; of a batch, the one that is full the longest. */
  get quota(): Quota {
    const denied = this.items.filter((item) => !item.allowed).map((item) => item.quota);
    return denied.reduce((last, quota) => (quota.reset_at > last.reset_at ? quota : last));
  }

  get remaining(): number {
    return this.quota.remaining;
  }

  get resetAt(): Date {
    return new Date(this.quota.reset_at);
  }
}

/** No policy and no default serves the pair. */
export class NotFound extends QuotalogError {}

/** The token is none (status 401), or may not do this (403). */
export class Denied extends QuotalogError {}

/** What was asked for can never be taken, or the key belongs to another request; see `problem.errors`. */
export class Invalid extends QuotalogError {}

/** The server cannot be asked for now, and nothing was counted. */
export class Outage extends QuotalogError {}

/** The server cannot be asked for now, or made a mistake (status 500), and the units may have been counted. */
export class OutcomeUnknown extends Outage {}

/** An answer that is none of quotalog's, as from a wrong URL. */
export class Unexpected extends QuotalogError {}

/** A server, and the token to ask it with. The deadline bounds a call with all its attempts. */
export class Client {
  readonly #url: string;
  readonly #token: string;
  readonly #deadlineMs: number;
  readonly #attemptTimeoutMs: number;

  constructor(url: string, token: string, { deadlineMs = 10_000, attemptTimeoutMs = 6_000 } = {}) {
    if (!isBase(url)) {
      throw new Invalid("The URL must be one of http or https, with a host, and without a user, a query or a fragment.");
    }
    // Without the token: it is a secret, and may be all but right.
    if (!/^[!-~]+$/.test(token)) {
      throw new Invalid("The token must be visible ASCII characters, without a blank or the end of a line.");
    }
    this.#url = url.replace(/\/+$/, "");
    this.#token = token;
    this.#deadlineMs = deadlineMs;
    this.#attemptTimeoutMs = attemptTimeoutMs;
  }

  /** The quota as it is; counts nothing. */
  async check(userId: string, resource: string): Promise<Quota> {
    return await this.#call<Quota>("GET", path("quotas", userId, resource), "remaining");
  }

  /** Counts the units, all or none. */
  async consume(userId: string, resource: string, amount = 1, options: Options = {}): Promise<Quota> {
    return await this.#call<Quota>("POST", path("quotas", userId, resource, "consume"), "remaining", { amount }, options);
  }

  /** Gives units of the present window back. */
  async refund(userId: string, resource: string, amount = 1, options: Pick<Options, "key"> = {}): Promise<Quota> {
    return await this.#call<Quota>("POST", path("quotas", userId, resource, "refund"), "remaining", { amount }, options);
  }

  /** Counts several pairs, all or none. Resolves to their quotas, in order. */
  async batch(items: Item[], options: Options = {}): Promise<Quota[]> {
    return (await this.#call<{ quotas: Quota[] }>("POST", "/consume", "quotas", { items }, options)).quotas;
  }

  /** The answer, which has such a member. */
  async #call<T>(method: string, path: string, member: string, body?: unknown, { key, wait }: Options = {}): Promise<T> {
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#token}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (method !== "GET") headers["Idempotency-Key"] = key === undefined ? randomUUID() : checkedKey(key);
    const request = { method, headers, body: body === undefined ? null : JSON.stringify(body) };
    const until = performance.now() + this.#deadlineMs;
    let mayHaveCounted = false;
    for (let attempt = 1, step = PAUSE_FIRST_MS; ; attempt += 1, step = Math.min(step * 2, PAUSE_MAX_MS)) {
      let failure: QuotalogError;
      try {
        return await this.#attempt<T>(path, member, request, until - performance.now());
      } catch (error) {
        if (!(error instanceof QuotalogError)) throw error;
        failure = error;
      }
      // Then the server has looked for an answer under the key: no attempt before has counted.
      const settled = failure instanceof Exhausted || failure instanceof NotFound || failure instanceof Invalid;
      mayHaveCounted = !settled && (mayHaveCounted || failure instanceof OutcomeUnknown);
      // A mistake of the server's would meet the same question again. A change may have been counted before it.
      const outage = failure instanceof Outage && !(failure.status === 500 && method === "GET");
      const again = outage || (wait === true && failure instanceof Exhausted);
      // By chance, so that many clients do not come back at once; and never before the server wants them.
      const pause = (failure.retryAfter ?? 0) * 1_000 + step * (0.5 + Math.random() / 2);
      if (!again || attempt === ATTEMPTS_MAX || pause >= until - performance.now()) {
        throw mayHaveCounted ? unknown(failure) : failure;
      }
      await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  async #attempt<T>(path: string, member: string, request: RequestInit, left: number): Promise<T> {
    const changes = request.method !== "GET";
    const timeout = Math.max(Math.min(this.#attemptTimeoutMs, left), 1);
    let answer: Response, text: string;
    try {
      const signal = AbortSignal.timeout(Math.ceil(timeout));
      answer = await fetch(this.#url + path, { ...request, signal, redirect: "manual" });
      text = await answer.text();
    } catch (error) {
      const code = (error as { cause?: { code?: string } }).cause?.code ?? "";
      const Kind = changes && !NOT_SENT.includes(code) ? OutcomeUnknown : Outage;
      throw new Kind(code === "" ? String(error) : `${error} (${code})`, undefined, {}, undefined, error);
    }
    const document = parsed(text);
    if (answer.status === 200 && member in document) return document as T;
    throw failed(answer, document, changes);
  }
}

/** What an answer that is no success means. */
function failed(answer: Response, problem: Problem, changes: boolean): QuotalogError {
  const { status } = answer;
  const name = String(problem.type ?? "").split(/[/#]/).at(-1);
  let Kind: typeof QuotalogError = Unexpected;
  const tells = "remaining" in problem || (Array.isArray(problem.items) && problem.items.length > 0);
  if (status === 429 && name === "quota-exceeded" && tells) Kind = Exhausted;
  else if (status === 404 && name === "not-found") Kind = NotFound;
  else if (status === 401 || status === 403) Kind = Denied;
  else if (NEVER_TAKEN.includes(`${status} ${name}`)) Kind = Invalid;
  else if (status === 503 && name === "unavailable") Kind = Outage;
  // The server's own word, or that of a proxy, who does not know what became of the request behind it.
  else if (status >= 500) Kind = changes ? OutcomeUnknown : Outage;
  const said = problem.detail ?? `the answer was ${status} and no problem document`;
  return new Kind(String(said), status, problem, retryAfter(answer.headers.get("Retry-After") ?? ""));
}

/** In whole seconds, as quotalog says it, or until an instant, as a proxy may (RFC 9110 section 10.2.3). */
function retryAfter(value: string): number | undefined {
  const isNumber = /^\d+$/.test(value);
  const seconds = isNumber ? Number(value) : Math.ceil((Date.parse(value) - Date.now()) / 1_000);
  // A bare number with a sign or a fraction would be a year to Date.parse.
  if (Number.isNaN(seconds) || (!isNumber && !value.endsWith("GMT"))) return undefined;
  return Math.max(0, Math.min(seconds, RETRY_AFTER_MAX_S));
}

/** What is thrown in place of an error, once an earlier attempt may have counted. */
function unknown(error: QuotalogError): OutcomeUnknown {
  return new OutcomeUnknown(error.message, error.status, error.problem, error.retryAfter, error);
}

/** An object; an empty one, if the text is none. */
function parsed(text: string): Problem {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Problem) : {};
  } catch {
    return {};
  }
}

/** Whether a path can be added to a URL. */
function isBase(url: string): boolean {
  // Not all that URL makes one of is one.
  return /^https?:\/\/[^/]/i.test(url) && !/[@?#\\\s]/.test(url) && URL.canParse(url) && new URL(url).port !== "0";
}

/** A blank at an end would be lost on the way, and the key be another one. */
function checkedKey(key: string): string {
  if (!/^[!-~]{1,255}$/.test(key)) throw new Invalid("Idempotency-Key must be 1 to 255 visible ASCII characters.");
  return key;
}

/** Some names would lead to another place once somebody has tidied the path up. */
function path(...names: string[]): string {
  const unfit = names.find((name) => ["", ".", ".."].includes(name) || name.includes("/") || !isText(name));
  if (unfit !== undefined) throw new Invalid(`${JSON.stringify(unfit)} must be a name other than "." and "..", without a "/".`);
  return names.map((name) => `/${encodeURIComponent(name)}`).join("");
}

/** Half a character of two units is none, and has no encoding. */
function isText(name: string): boolean {
  return !/[\uD800-\uDBFF](?![\uDC00-\uDFFF])|(?<![\uD800-\uDBFF])[\uDC00-\uDFFF]/.test(name);
}
