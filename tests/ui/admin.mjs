// What an admin does, seen from both sides: on the page and over the API.

import assert from "node:assert/strict";
import { ADMIN, PATIENCE_MS, api, quota } from "./browser.mjs";

async function asAdmin(open, options) {
  const tab = await open(options);
  await tab.signIn(ADMIN);
  return tab;
}

export async function aUserIsFoundAndHelped(open) {
  const path = await quota("Ada Example", "api calls", "hourly", 95, 80);
  const tab = await asAdmin(open);
  await tab.turnsTo("Find a user");
  await tab.field("User").fill("Ada Example");
  await tab.button("Find").click();
  await tab.page.getByRole("link", { name: "api calls" }).click();
  await tab.shows("usage", 80);
  assert.equal(await tab.page.title(), "api calls · quotalog");
  assert.ok(await tab.page.locator("h1").evaluate((heading) => heading === document.activeElement));
  assert.ok(await tab.page.locator(".chart canvas").isVisible());

  // A tenth of 95, rounded up, is 10.
  await tab.button("+10 %: 105").click();
  await tab.box().getByText("changes from 95 per hour to 105 per hour").waitFor();
  await tab.isAccessible();
  await tab.page.keyboard.press("Escape");
  await tab.box().waitFor({ state: "detached" });
  assert.equal((await api("GET", path)).limit_count, 95);
  assert.ok(await tab.button("+10 %: 105").evaluate((button) => button === document.activeElement));
  await tab.button("+10 %: 105").click();
  await tab.confirms("Save");
  await tab.sees(/^Saved: 105 per hour\. Used 80/);
  assert.equal((await api("GET", path)).limit_count, 105);

  await tab.button("Give units back").click();
  await tab.field("Units to give back").fill("0");
  await tab.box().getByRole("button", { name: "Give units back" }).click();
  await tab.sees("Enter a whole number from 1 to 1,000,000.");
  await tab.field("Units to give back").fill("30");
  await tab.confirms("Give units back");
  await tab.shows("usage", 50);

  await tab.button("Reset usage").click();
  await tab.box().getByText(/in the window Jan 15, 0\d:00–0\d:00 UTC goes back to 0\. It is 50 now\./).waitFor();
  await tab.confirms("Reset usage");
  await tab.sees(/^The window .+ was reset: 0 used of 105 per hour\.$/);
  await tab.shows("usage", 0);
  assert.equal((await api("GET", path)).usage, 0);

  for (const what of ["Usage reset", "Units given back", "Policy saved"]) await tab.sees(what);
  await tab.sees("95 per hour → 105 per hour");

  await tab.button("Delete policy").click();
  await tab.confirms("Delete policy");
  await tab.sees("No policy and no default serves");
  assert.equal((await api("GET", path)).status, 404);
}

export async function aTenthMoreStopsAtTheLargestLimit(open) {
  await quota("big", "a", "daily", 950_000);
  await quota("big", "b", "daily", 1_000_000);
  await quota("big", "c", "daily", 1);
  const tab = await asAdmin(open);
  await tab.go("quota", "big", "a");
  await tab.button("+10 %: 1,000,000").waitFor();
  await tab.go("quota", "big", "b");
  assert.ok(await tab.page.getByRole("button", { name: "+10 %" }).isDisabled());
  await tab.go("quota", "big", "c");
  await tab.button("+10 %: 2").waitFor();
}

export async function anEditIsGuarded(open) {
  const path = await quota("guarded", "r", "hourly", 10, 2);
  const tab = await asAdmin(open);
  await tab.go("quota", "guarded", "r");
  await tab.field("Limit").fill("ten");
  await tab.button("Save").click();
  await tab.sees("Enter a whole number from 1 to 1,000,000.");
  await tab.field("Limit").fill("20");
  await tab.field("Window").selectOption("daily");

  // Somebody else is faster; what was typed stays, and is not saved.
  await quota("guarded", "r", "hourly", 15);
  await tab.button("Save").click();
  await tab.box().getByText("with all that was used since midnight UTC").waitFor();
  await tab.confirms("Save");
  await tab.sees("Not saved: somebody else has changed this policy in the meantime.");
  await tab.sees("it is 15 per hour now.");
  await tab.isAccessible();
  assert.equal(await tab.field("Limit").inputValue(), "20");
  assert.equal((await api("GET", path)).limit_count, 15);
  await tab.button("Save").click();
  await tab.box().getByText("changes from 15 per hour to 20 per day").waitFor();
  await tab.confirms("Save");
  await tab.sees(/^Saved: 20 per day/);
  const saved = await api("GET", path);
  assert.deepEqual([saved.window, saved.limit_count, saved.usage], ["daily", 20, 2]);

  await tab.field("Limit").fill("1");
  await tab.button("Take theirs").waitFor({ state: "detached" });
  await tab.button("Discard").click();
  assert.equal(await tab.field("Limit").inputValue(), "20");
}

export async function aBarFillsWhileOneLooks(open) {
  const path = await quota("filling", "r", "daily", 10, 1);
  const tab = await asAdmin(open);
  await tab.go("quota", "filling", "r");
  const meter = tab.page.getByRole("meter");
  assert.equal(await meter.getAttribute("aria-valuenow"), "10");
  await api("POST", `${path}/consume`, { amount: 9 });
  await tab.shows("remaining", 0);
  assert.equal(await meter.getAttribute("aria-valuenow"), "100");

  // Beyond a limit that was lowered: full, and said so.
  await quota("filling", "r", "daily", 4);
  await tab.sees("Full, 6 over the limit");
  await tab.shows("remaining", 0);
  await tab.page.waitForFunction(() => {
    const bar = document.querySelector("[role=meter]");
    return bar.firstElementChild.getBoundingClientRect().width === bar.getBoundingClientRect().width;
  });
  assert.equal(await meter.getAttribute("aria-valuenow"), "100");
  await tab.readsWell();
  await tab.go("user", "filling");
  await tab.sees("Full, 6 over the limit");
  await tab.readsWell();
  await tab.go("near");
  const row = tab.page.locator("tbody tr", { hasText: "filling" });
  await row.getByText("Full, 6 over the limit").waitFor();
  await tab.readsWell();
}

export async function aListGoesOnPageByPage(open) {
  for (let place = 0; place < 30; place += 1) await quota("many", `resource-${String(place).padStart(2, "0")}`, "daily", 10);
  const tab = await asAdmin(open);
  await tab.go("user", "many");
  assert.equal(await tab.page.locator("tbody tr").count(), 25);
  assert.ok(await tab.button("Back").isDisabled());
  await tab.button("Next").click();
  await tab.sees("resource-29");
  assert.equal(await tab.page.locator("tbody tr").count(), 5);
  await tab.button("Back").click();
  await tab.sees("resource-00");
  await tab.go("user", "Many");
  await tab.sees("There are no quotas for");
}

export async function defaultsAreMadeChangedAndDeleted(open) {
  const tab = await asAdmin(open);
  await tab.turnsTo("Defaults");
  await tab.button("New default").click();
  await tab.field("Resource").fill("shared & common");
  await tab.field("Limit").fill("12");
  await tab.isAccessible();
  await tab.confirms("Save");
  await tab.sees("is 12 per hour now.");
  const served = await api("POST", "/quotas/someone/shared%20%26%20common/consume");
  assert.deepEqual([served.limit_count, served.source], [12, "default"]);

  await tab.button("New default").click();
  await tab.field("Resource").fill("shared & common");
  await tab.field("Limit").fill("13");
  await tab.box().getByRole("button", { name: "Save" }).click();
  await tab.sees("There is a default for this resource already. Nothing was changed.");
  await tab.box().getByRole("button", { name: "Cancel" }).click();

  // On a pair that the default serves, an edit makes a policy of its own.
  await tab.go("quota", "someone", "shared & common");
  await tab.sees("From the default");
  assert.equal(await tab.button("Delete policy").count(), 0);
  await tab.field("Limit").fill("20");
  await tab.button("Save").click();
  await tab.box().getByText("gets a policy of their own").waitFor();
  await tab.confirms("Save");
  await tab.sees("Own policy");

  await tab.go("defaults");
  await tab.button("Edit the default of shared & common").click();
  await tab.field("Window").selectOption("daily");
  await tab.confirms("Save");
  await tab.sees("is 12 per day now.");
  await tab.button("Delete the default of shared & common").click();
  await tab.confirms("Delete");
  await tab.sees("was deleted.");
  assert.equal((await api("GET", "/defaults/shared%20%26%20common")).status, 404);
}

export async function aTokenIsMadeShownOnceAndRevoked(open) {
  const tab = await asAdmin(open);
  await tab.turnsTo("Tokens");
  await tab.button("New token").click();
  await tab.field("Role").selectOption("user");
  await tab.box().getByRole("button", { name: "Create token" }).click();
  await tab.sees("This cannot be a user’s id.");
  await tab.field("User").fill("token owner");
  await tab.field("Name (optional)").fill("for the walk");
  await tab.isAccessible();
  await tab.box().getByRole("button", { name: "Create token" }).click();
  await tab.page.getByRole("heading", { name: "Copy the token now" }).waitFor();
  const secret = await tab.page.locator("[name=secret]").inputValue();
  await tab.isAccessible();
  // It cannot be seen again, so no stray key closes the box.
  await tab.page.keyboard.press("Escape");
  assert.equal((await api("GET", "/quotas/token%20owner", undefined, secret)).status, 200);
  await tab.context.grantPermissions(["clipboard-read", "clipboard-write"]);
  await tab.button("Copy").click();
  await tab.sees("Copied.");
  assert.equal(await tab.page.evaluate(() => navigator.clipboard.readText()), secret);
  await tab.button("I have it, close").click();
  await tab.box().waitFor({ state: "detached" });
  assert.ok(!(await tab.page.content()).includes(secret));
  const stored = await tab.page.evaluate(() => JSON.stringify([{ ...sessionStorage }, { ...localStorage }]));
  assert.ok(!stored.includes(secret));

  await tab.button("Revoke for the walk").click();
  await tab.confirms("Revoke");
  await tab.sees("The token was revoked.");
  assert.equal((await api("GET", "/quotas/token%20owner", undefined, secret)).status, 401);
  await tab.page.getByRole("cell", { name: "for the walk" }).waitFor({ state: "detached" });
}

export async function aNewPolicyChangesNoneThatIsThere(open) {
  const tab = await asAdmin(open);
  await tab.turnsTo("New policy");
  await tab.button("Create policy").click();
  await tab.sees("An id must not be empty");
  assert.ok(await tab.field("User").evaluate((input) => input === document.activeElement));
  await tab.field("User").fill("newcomer");
  await tab.field("Resource").fill("é".repeat(128));
  await tab.field("Limit").fill("1000000");
  await tab.button("Create policy").click();
  await tab.sees("This is too long: at most 255 bytes.");
  await tab.field("Resource").fill("..");
  await tab.button("Create policy").click();
  await tab.sees("An id must not be empty");
  await tab.field("Resource").fill("r");
  await tab.button("Create policy").click();
  await tab.sees(/^Created: 1,000,000 per hour/);
  await tab.shows("remaining", "1,000,000");

  await tab.go("new", "newcomer", "r");
  await tab.field("Limit").fill("5");
  await tab.button("Create policy").click();
  await tab.sees("has a policy for");
  assert.equal((await api("GET", "/quotas/newcomer/r")).limit_count, 1_000_000);
  await tab.page.getByRole("link", { name: "Open it" }).click();
  await tab.shows("usage", 0);
}

export async function theFullestAreFilteredByResource(open) {
  await quota("f1", "filtered", "daily", 10, 5);
  await quota("f2", "filtered", "daily", 10, 9);
  const tab = await asAdmin(open);
  await tab.field("Resource").fill("filtered");
  await tab.button("Show").click();
  await tab.page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
  const users = await tab.page.locator("tbody tr td:first-child a").allInnerTexts();
  assert.deepEqual(users, ["f2", "f1"]);
  await tab.field("Resource").fill("filtere_");
  await tab.button("Show").click();
  await tab.sees("There are no quotas of");

  // Paused numbers stay, and go on when they may.
  await tab.field("Resource").fill("filtered");
  await tab.button("Show").click();
  await tab.page.waitForFunction(() => document.querySelectorAll("tbody tr").length === 2);
  await tab.button("Pause").click();
  await tab.sees("Paused. As of");
  await api("POST", "/quotas/f1/filtered/consume", { amount: 5 });
  await tab.button("Pause").click();
  await tab.page.locator("tbody tr", { hasText: "f1" }).getByText("Full", { exact: true }).waitFor({ timeout: PATIENCE_MS });
}
