// What the pages say and show when something is not as it should be. A name with `c` and a number tells which published
// fault of comparable pages the walk keeps out.

import assert from "node:assert/strict";
import { ADMIN, api, quota } from "./browser.mjs";

const HOUR_MS = 3_600_000;
const refusal = (status, headers = {}, problem = {}) => ({
  status,
  headers: { "content-type": "application/problem+json", ...headers },
  body: JSON.stringify({ status, ...problem }),
});

async function asAdmin(open, options) {
  const tab = await open(options);
  await tab.signIn(ADMIN);
  return tab;
}

/** A name as it is read out. */
const marked = (name) => name.replace("\u202e", "U+202E \u202e");

export async function c69_namesAreTextEverywhere(open) {
  const names = ["<img src=x onerror=alert(1)>", "x');alert(1);", "\u202e<b>a&amp;b"];
  const tab = await asAdmin(open);
  for (const name of names) {
    await quota(name, name, "daily", 10, 9);
    await tab.go("user", name);
    await tab.page.getByRole("heading", { level: 1 }).getByText(name, { exact: true }).waitFor();
    await tab.page.getByRole("link", { name: marked(name), exact: true }).click();
    await tab.shows("usage", 9);
    assert.equal(await tab.page.title(), `${name} · quotalog`);
    await tab.button("Reset usage").click();
    assert.ok((await tab.box().textContent()).includes(`What ${name} has used of ${name} in`));
    await tab.confirms("Reset usage");
    await tab.shows("usage", 0);
    await api("POST", `/quotas/${encodeURIComponent(name)}/${encodeURIComponent(name)}/consume`, { amount: 9 });
  }
  await tab.go("near");
  await tab.field("Rows").selectOption("100");
  for (const name of names) await tab.page.getByRole("link", { name: marked(name), exact: true }).first().waitFor();
  // What is no id is said to be none, and is text as well.
  for (const name of ["x');alert(1);//", "<img/src=x onerror=alert(1)>", "..", "."]) {
    await tab.go("user");
    await tab.field("User").fill(name);
    await tab.button("Find").click();
    await tab.sees("An id must not be empty");
  }
  await tab.visit("#/user/%3Cimg%20src=x%20onerror=alert(1)%3E/%00/%ff");
  await tab.settled();
  assert.equal(await tab.page.locator("main img, main b").count(), 0);

  const csp = (await (await tab.page.request.get(tab.page.url())).headers())["content-security-policy"];
  assert.ok(csp.includes("script-src 'self'") && !csp.includes("unsafe"));
  // The policy is in force: what would be inline does not run.
  const ran = await tab.page.evaluate(() => {
    const script = document.createElement("script");
    try {
      script.textContent = "window.ran = true";
      document.body.append(script);
    } catch {
      // Trusted types have refused it before.
    }
    return window.ran === true;
  });
  assert.equal(ran, false);
  tab.found.splice(0, tab.found.length, ...tab.found.filter((found) => !/Content Security Policy|TrustedScript/.test(found)));
}

export async function c69_whatCannotBeSeenInANameIsMarked(open) {
  const tab = await asAdmin(open);
  const names = { "alike": [], "alike\u200b": ["U+200B"], " alike": ["␣"], "ali\u00a0ke": ["U+00A0"], "ali ke": [], "\u202eekila": ["U+202E"] };
  for (const [name, marks] of Object.entries(names)) {
    await quota(name, name, "daily", 10, 9);
    await tab.go("quota", name, name);
    await tab.shows("usage", 9);
    const heading = tab.page.locator("h1");
    assert.deepEqual(await heading.locator(".unseeable").evaluateAll((all) => all.map(({ dataset }) => dataset.mark)), marks);
    // Whoever copies it has the very name.
    assert.equal(await heading.evaluate((h1) => {
      getSelection().selectAllChildren(h1);
      return getSelection().toString();
    }), name);
  }
  // The last one turns nothing around.
  const [first, last] = await tab.page.locator("h1").evaluate((h1) => {
    const text = h1.firstElementChild.lastChild;
    return [0, text.length - 1].map((place) => {
      const range = document.createRange();
      range.setStart(text, place);
      range.setEnd(text, place + 1);
      return range.getBoundingClientRect().left;
    });
  });
  assert.ok(first < last);
  await tab.isAccessible();
}

export async function c71_refusalsHaveMessagesOfTheirOwn(open) {
  await quota("refused", "r", "daily", 10, 5);
  const tab = await asAdmin(open);
  await tab.go("quota", "refused", "r");
  const said = {};
  for (const [status, headers, problem] of [
    [403],
    [429, { "retry-after": "30" }],
    [503, { "retry-after": "2" }, { type: "/problems/unavailable" }],
    [503, { "retry-after": "2" }, { type: "/problems/outcome-unknown" }],
    [502],
    [500, { "x-request-id": "the-number" }],
  ]) {
    await tab.page.route("**/reset", (route) => route.fulfill(refusal(status, headers, problem)));
    await tab.button("Reset usage").click();
    await tab.box().getByRole("button", { name: "Reset usage" }).click();
    said[`${status} ${problem?.type ?? ""}`] = await tab.box().getByRole("alert").innerText();
    await tab.box().getByRole("button", { name: "Cancel" }).click();
    await tab.page.unroute("**/reset");
  }
  assert.match(said["403 "], /may not do this/);
  // The one that no page asks for by itself.
  const [forbidden, ...others] = tab.found.splice(0);
  assert.match(forbidden, / 403 .*\/reset\)$/);
  assert.deepEqual(others, []);
  assert.match(said["429 "], /Too many requests.*Try again in 30s/);
  assert.match(said["503 /problems/unavailable"], /cannot reach its data.*Nothing was changed/);
  assert.match(said["503 /problems/outcome-unknown"], /may or may not have been made/);
  assert.match(said["502 "], /may or may not have been made/);
  assert.match(said["500 "], /went wrong \(500\)\. .*this number: the-number/);
  assert.equal((await api("GET", "/quotas/refused/r")).usage, 5);

  await tab.page.route("**/reset", (route) => route.fulfill(refusal(401)));
  await tab.button("Reset usage").click();
  await tab.box().getByRole("button", { name: "Reset usage" }).click();
  await tab.sees("Your token is no longer valid.");
}

export async function c71_aFailedRefreshKeepsTheOldNumbersMarkedWithTheirTime(open) {
  await quota("stale", "stale-things", "daily", 10, 5);
  const tab = await asAdmin(open);
  await tab.go("quota", "stale", "stale-things");
  await tab.shows("usage", 5);
  const time = (await tab.page.locator(".updated").innerText()).match(/\d\d:\d\d:\d\d UTC/)[0];
  const there = (url) => url.pathname === "/quotas/stale/stale-things";
  await tab.page.route(there, (route) => route.fulfill(refusal(503, { "retry-after": "1" }, { type: "/problems/unavailable" })));
  await tab.button("Refresh").click();
  await tab.sees("These numbers are old: they are from");
  const stale = await tab.page.locator(".stale").innerText();
  // A refresh of its own may have come between; the time is that of the last answer, and it is a time.
  assert.match(stale, /from \d\d:\d\d:\d\d UTC\. The server cannot reach its data/);
  assert.ok(stale.match(/\d\d:\d\d:\d\d UTC/)[0] >= time);
  await tab.shows("usage", 5);
  await tab.isAccessible();
  await tab.page.unroute(there);
  await tab.page.route(there, (route) => route.abort());
  await tab.button("Refresh").click();
  await tab.sees("The server does not answer.");
  await tab.shows("usage", 5);
  await tab.page.unroute(there);
  // By itself, without a click.
  await tab.page.locator(".stale").waitFor({ state: "detached" });

  // What never was there is an error, not an empty list.
  await tab.page.route("**/quotas?sort**", (route) => route.fulfill(refusal(503, {}, { type: "/problems/unavailable" })));
  await tab.go("near");
  await tab.sees("The server cannot reach its data");
  assert.doesNotMatch(await tab.text(), /Nothing was changed/);
  assert.equal(await tab.page.locator("table").count(), 0);
  await tab.page.unroute("**/quotas?sort**");
  await tab.button("Try again").click();
  await tab.page.locator("tbody tr").first().waitFor();
}

export async function c71_anOlderAnswerOverwritesNoNewerOne(open) {
  await quota("late", "late-things", "daily", 1_000, 100);
  const tab = await asAdmin(open);
  await tab.page.clock.install();
  await tab.go("quota", "late", "late-things");
  await tab.shows("usage", 100);
  const held = [];
  let holds = true;
  await tab.page.route((url) => url.pathname === "/quotas/late/late-things", async (route) => {
    if (!holds) return route.continue();
    // The answer of now, to be given later.
    held.push({ route, response: await route.fetch() });
  });
  await tab.button("Refresh").click();
  await assert.doesNotReject(async () => {
    while (!held.length) await tab.page.evaluate(() => 0);
  });
  holds = false;
  await api("POST", "/quotas/late/late-things/consume", { amount: 11 });
  await tab.button("Refresh").click();
  await tab.shows("usage", 111);
  // The browser may have given the older request up already.
  for (const { route, response } of held) await route.fulfill({ response }).catch(() => {});
  await tab.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await tab.shows("usage", 111);

  // An answer from before a reset does not bring its numbers back either.
  holds = true;
  held.length = 0;
  await tab.button("Refresh").click();
  while (!held.length) await tab.page.evaluate(() => 0);
  holds = false;
  await tab.button("Reset usage").click();
  await tab.confirms("Reset usage");
  await tab.shows("usage", 0);
  for (const { route, response } of held) await route.fulfill({ response }).catch(() => {});
  await tab.page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await tab.shows("usage", 0);
}

export async function c71_aResetAcrossTheHourSaysWhichWindowItWas(open) {
  const path = await quota("across", "hours", "hourly", 10, 7);
  const before = await api("GET", path);
  const tab = await asAdmin(open);
  // The page learns of the window an hour ago, as if the box had been opened ten seconds before this hour.
  const earlier = (instant) => new Date(Date.parse(instant) - HOUR_MS).toISOString().replace(".000", "");
  const there = (url) => url.pathname === path;
  await tab.page.route(there, async (route) => {
    const response = await route.fetch();
    const quota = await response.json();
    await route.fulfill({ response, json: { ...quota, window_start: earlier(quota.window_start), reset_at: earlier(quota.reset_at), usage: 9, remaining: 1 } });
  });
  await tab.go("quota", "across", "hours");
  await tab.shows("usage", 9);
  await tab.button("Reset usage").click();
  const hour = (instant) => instant.slice(11, 16);
  const [was, start, end] = [hour(earlier(before.window_start)), hour(before.window_start), hour(before.reset_at)];
  await tab.box().getByText(`${was}–${start} UTC goes back to 0. It is 9 now.`).waitFor();
  await tab.page.unroute(there);
  await tab.confirms("Reset usage");
  await tab.sees(new RegExp(`${was}–${start} UTC was over before you confirmed\\. The window .*${start}–${end} UTC was reset: 0 used of 10 per hour\\.`));
  await tab.shows("usage", 0);
  await tab.sees(`${start}–${end} UTC`);
}

export async function c71_aDoubleClickResetsOnce(open) {
  const path = await quota("double", "clicks", "daily", 10, 7);
  const tab = await asAdmin(open);
  const keys = [];
  tab.page.on("request", (request) => request.url().endsWith("/reset") && keys.push(request.headers()["idempotency-key"]));
  await tab.go("quota", "double", "clicks");
  await tab.button("Reset usage").dblclick();
  await tab.box().getByRole("button", { name: "Reset usage" }).dblclick();
  await tab.shows("usage", 0);
  assert.equal(await tab.page.getByRole("alert").count(), 0);
  assert.equal((await api("GET", path)).usage, 0);
  assert.equal(keys.length, 1);
  const entries = (await api("GET", "/audit?user_id=double")).entries.filter(({ action }) => action === "quota.reset");
  assert.equal(entries.length, 1);
}

export async function aBoxStaysWhileItsChangeIsUnderWay(open) {
  const path = await quota("slow", "r", "daily", 100, 50);
  const tab = await asAdmin(open);
  await tab.go("quota", "slow", "r");
  const held = [];
  await tab.page.route("**/refund", (route) => held.push(route));
  await tab.button("Give units back").click();
  await tab.field("Units to give back").fill("10");
  await tab.box().getByRole("button", { name: "Give units back" }).click();
  await tab.box().getByRole("button", { name: "One moment…" }).waitFor();
  // Neither a key nor a button calls back what was sent, and closed boxes would be opened again, to send it again.
  for (let presses = 0; presses < 3; presses += 1) await tab.page.keyboard.press("Escape");
  await tab.box().getByRole("button", { name: "Cancel" }).click({ force: true });
  assert.equal(await tab.box().count(), 1);
  await tab.isAccessible();
  for (const route of held) await route.continue();
  await tab.sees(/^Units were given back/);
  assert.equal(await tab.box().count(), 0);
  assert.equal(held.length, 1);
  assert.equal((await api("GET", path)).usage, 40);
}

export async function aPageOfAProxyIsNoAnswer(open) {
  const path = await quota("proxied", "r", "daily", 100, 50);
  const tab = await asAdmin(open);
  const signIn = { status: 200, contentType: "text/html", body: "<h1>Sign in to the proxy</h1>" };
  await tab.page.route("**/quotas/**", (route) => route.fulfill(signIn));
  await tab.go("quota", "proxied", "r");
  await tab.sees("The server does not answer.");
  await tab.page.unroute("**/quotas/**");
  await tab.button("Refresh").click();
  await tab.shows("usage", 50);
  await tab.page.route("**/reset", (route) => route.fulfill(signIn));
  await tab.button("Reset usage").click();
  await tab.box().getByRole("button", { name: "Reset usage" }).click();
  await tab.box().getByText("may or may not have been made").waitFor();
  assert.equal((await api("GET", path)).usage, 50);
}

export async function aLostAnswerIsTriedAgainUnderItsKey(open) {
  const path = await quota("lost", "r", "daily", 100, 50);
  const tab = await asAdmin(open);
  await tab.go("quota", "lost", "r");
  // It reaches the server, and its answer does not reach the page.
  await tab.page.route("**/refund", async (route) => {
    await route.fetch();
    await route.abort();
  }, { times: 1 });
  await tab.button("Give units back").click();
  await tab.field("Units to give back").fill("10");
  await tab.box().getByRole("button", { name: "Give units back" }).click();
  await tab.box().getByText("may or may not have been made").waitFor();
  await tab.confirms("Give units back");
  await tab.sees(/^Units were given back/);
  assert.equal((await api("GET", path)).usage, 40);
}

export async function aServerThatIsAwayAtTheStartIsAskedAgain(open) {
  const tab = await asAdmin(open);
  await tab.page.route("**/whoami", (route) => route.abort());
  await tab.page.reload();
  await tab.sees("The server does not answer.");
  await tab.page.unroute("**/whoami");
  await tab.button("Try again").click();
  await tab.page.getByRole("heading", { name: "Near the limit" }).waitFor();
}

export async function aLongSearchIsWaitedFor(open) {
  await quota("searched", "r", "daily", 100, 99);
  const tab = await asAdmin(open);
  await tab.go("defaults");
  await tab.page.getByRole("heading", { name: "Defaults" }).waitFor();
  // As if a minute passed with every request. The server itself searches no longer than that.
  await tab.page.evaluate(() => {
    AbortSignal.timeout = (patienceMs) => (patienceMs > 60_000 ? new AbortController().signal : AbortSignal.abort());
  });
  await tab.button("Refresh").click();
  await tab.sees("The server does not answer.");
  await tab.go("near");
  await tab.page.getByRole("link", { name: "searched" }).waitFor();
}
