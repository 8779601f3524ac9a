// A browser whose pages fail the test for whatever no page of ours may do: write an error to the console, throw, open
// a dialog of the browser's own, ask another host.

import assert from "node:assert/strict";
import { createHmac, randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { setTimeout as pause } from "node:timers/promises";

const url = process.env.QUOTALOG_URL;
const admin = process.env.QUOTALOG_ADMIN_TOKEN;
const require = createRequire(`${process.env.UI_MODULES}/`);
const { chromium } = require("playwright-core");
const axe = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");

export const ADMIN = admin;
export const PATIENCE_MS = 30_000;

/** A segment of a path. */
export const segment = encodeURIComponent;

/** One call of the API, outside the browser. A server whose machine is too busy for it is asked again, as it says. */
export async function api(method, path, body, token = admin) {
  const headers = { authorization: `Bearer ${token}`, "idempotency-key": randomUUID(), ...(body && { "content-type": "application/json" }) };
  const lastMs = Date.now() + PATIENCE_MS;
  for (;;) {
    const response = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    if (response.status !== 503 || Date.now() > lastMs) return { status: response.status, ...(text ? JSON.parse(text) : {}) };
    await pause(1_000 * response.headers.get("retry-after"));
  }
}

/** Sets a policy, counts so many units under it, and returns its path. */
export async function quota(user, resource, window, limit_count, used = 0) {
  const path = `/quotas/${segment(user)}/${segment(resource)}`;
  assert.equal((await api("PUT", path, { window, limit_count })).status, 200);
  if (used) assert.equal((await api("POST", `${path}/consume`, { amount: used })).status, 200);
  return path;
}

export async function token(role, user_id) {
  const made = await api("POST", "/tokens", { role, user_id });
  assert.equal(made.status, 201);
  return made.token;
}

/** A JWT that is good for so many seconds from now, by the server's clock. */
export async function jwt(claims, seconds) {
  const { headers } = await fetch(`${url}/healthz`);
  const exp = Math.floor(Date.parse(headers.get("date")) / 1_000) + seconds;
  const { QUOTALOG_JWT_SECRET: secret, QUOTALOG_JWT_AUDIENCE: aud } = process.env;
  const parts = [{ alg: "HS256" }, { aud, exp, ...claims }];
  const signed = parts.map((part) => Buffer.from(JSON.stringify(part)).toString("base64url")).join(".");
  return `${signed}.${createHmac("sha256", secret).update(signed).digest("base64url")}`;
}

export async function launch() {
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM,
    // Root has no sandbox, and a container has little shared memory.
    args: ["--no-sandbox", "--disable-dev-shm-usage"],
  });
  return { open: (options) => open(browser, options), close: () => browser.close() };
}

/** A page of a new tab in a browser of its own. `found` gathers what it did and must not do. */
async function open(browser, { width = 1200, locale = "en-US", theme = "light" } = {}) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, locale, colorScheme: theme });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const found = [];
  watch(page, found);
  return new Tab(page, context, found);
}

function watch(page, found) {
  page.on("console", (message) => {
    if (!["error", "warning"].includes(message.type())) return;
    // The browser notes each refusal of the API; the pages say it to the reader. They ask for nothing that is forbidden.
    const { url: from } = message.location();
    const refused = /^Failed to load resource: (?!.* 403 )/.test(message.text()) && !from.includes("/dashboard");
    if (!refused) found.push(`console: ${message.text()} (${from})`);
  });
  page.on("pageerror", (error) => found.push(`error: ${error.stack}`));
  page.on("dialog", (dialog) => {
    found.push(`dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  page.on("request", (request) => {
    if (new URL(request.url()).origin !== url) found.push(`request: ${request.url()}`);
    if (request.url().includes(admin)) found.push("the token is in a URL");
  });
}

class Tab {
  constructor(page, context, found) {
    Object.assign(this, { page, context, found });
  }

  /** What a reader sees of the page. */
  text = () => this.page.locator("body").innerText();
  button = (name) => this.page.getByRole("button", { name, exact: true });
  field = (name) => this.page.getByLabel(name, { exact: true });
  box = () => this.page.getByRole("dialog");

  async visit(hash = "") {
    await this.page.goto(`${url}/dashboard${hash}`);
  }

  async signIn(secret) {
    await this.visit();
    await this.page.locator("[name=token]").fill(secret);
    await this.page.locator("form button[type=submit]").click();
    await this.page.locator("header .role").waitFor();
  }

  /** Another page of the dashboard, without loading it anew. */
  async go(...to) {
    const hash = `#/${to.map(segment).join("/")}`;
    await this.page.evaluate((there) => (location.hash = there), hash);
    await this.settled();
  }

  /** The same by the names above the pages. */
  async turnsTo(name) {
    await this.page.locator("header nav").getByRole("link", { name, exact: true }).click();
  }

  /** Waits until nothing is loading any more. */
  async settled() {
    await this.page.waitForFunction(() => document.querySelector("h1") && !document.querySelector(".loading"));
  }

  async sees(text) {
    await this.page.getByText(text).first().waitFor();
  }

  /** What the present window of the quota that is shown has counted. */
  async shows(name, value) {
    await this.page.locator(`[data-name=${name}]`, { hasText: new RegExp(`^${value}$`) }).waitFor();
  }

  /** Confirms what the box asks, again where the server was too busy for it. */
  async confirms(name) {
    const lastMs = Date.now() + PATIENCE_MS;
    do {
      await this.box().getByRole("button", { name, exact: true }).click();
      await this.page.waitForFunction(() => {
        const box = document.querySelector("dialog");
        return !box || box.innerText.includes("Try again in");
      });
    } while ((await this.box().count()) && Date.now() < lastMs);
    await this.box().waitFor({ state: "detached" });
  }

  /** No text that a value which is not there leaves behind, and no number below zero. */
  async readsWell() {
    const text = await this.text();
    for (const wrong of [/undefined/, /NaN/, /\bnull\b/, /\[object/, /\{\w+\}/, /(^|\s)[-−]\d/m]) {
      assert.doesNotMatch(text, wrong);
    }
  }

  async fitsItsWidth() {
    const [wide, there] = await this.page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= there, `${wide} px in ${there} at ${this.page.url()}`);
  }

  async isAccessible() {
    // Half-drawn colours of a transition are nobody's contrast.
    await this.page.evaluate(() => Promise.all(document.getAnimations().filter(({ effect }) => effect.getTiming().iterations !== Infinity).map(({ finished }) => finished)));
    // What a tool evaluates is not the page's, so the page's policy of content does not concern it.
    if (await this.page.evaluate(() => !window.axe)) await this.page.evaluate(axe);
    const { violations } = await this.page.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
    const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical" || impact === "moderate");
    const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("; ")}`);
    assert.deepEqual(told, [], `axe at ${this.page.url()}`);
  }

  async close() {
    await this.context.close();
    assert.deepEqual(this.found, []);
  }
}
