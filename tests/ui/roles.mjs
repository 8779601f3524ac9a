// Who may come in, and what each sees.

import assert from "node:assert/strict";
import { ADMIN, PATIENCE_MS, api, jwt, quota, token } from "./browser.mjs";

/** Every control that changes something on the server. */
const CHANGES = /^(New policy|New default|New token|Reset usage|Give units back|Delete policy|Save|Edit|Delete|Revoke|\+10%)/;

async function mayChangeNothing(tab) {
  const controls = await tab.page.locator("main button, main a").allInnerTexts();
  assert.deepEqual(controls.filter((name) => CHANGES.test(name.trim())), []);
}

export async function aTokenIsKeptForTheTabAlone(open) {
  const tab = await open();
  await tab.visit("#/near");
  await tab.field("Token").fill("ql_not-a-token");
  await tab.page.keyboard.press("Enter");
  await tab.sees("This token is not valid: it is unknown, revoked or expired.");
  assert.equal(await tab.field("Token").getAttribute("aria-invalid"), "true");
  assert.ok(await tab.field("Token").evaluate((input) => input === document.activeElement));
  // What no header can carry is no token either.
  await tab.field("Token").fill("日本語");
  await tab.page.keyboard.press("Enter");
  await tab.sees("This token is not valid: it is unknown, revoked or expired.");

  await tab.signIn(ADMIN);
  await tab.page.getByRole("heading", { name: "Near the limit" }).waitFor();
  const kept = await tab.page.evaluate(() => [JSON.stringify({ ...sessionStorage }), JSON.stringify({ ...localStorage }), document.cookie]);
  assert.ok(kept[0].includes(ADMIN) && !kept[1].includes(ADMIN) && kept[2] === "");
  await tab.page.reload();
  await tab.page.getByRole("heading", { name: "Near the limit" }).waitFor();

  const other = await tab.context.newPage();
  await other.goto(tab.page.url());
  await other.getByRole("heading", { name: "Sign in" }).waitFor();
  await tab.button("Sign out").click();
  await tab.page.getByRole("heading", { name: "Sign in" }).waitFor();
  assert.equal(await tab.page.evaluate(() => sessionStorage.length), 0);
}

export async function aViewerSeesAndCannotChange(open) {
  await quota("viewed", "pages", "hourly", 10, 4);
  await api("PUT", "/defaults/viewed-default", { window: "daily", limit_count: 7 });
  const tab = await open();
  await tab.signIn(await token("viewer"));
  const pages = await tab.page.locator("header nav a").allInnerTexts();
  assert.deepEqual(pages, ["Near the limit", "Find a user", "Defaults"]);
  for (const to of [["near"], ["user", "viewed"], ["quota", "viewed", "pages"], ["defaults"], ["tokens"], ["new"], ["quota", "viewed", "nothing"]]) {
    await tab.go(...to);
    await mayChangeNothing(tab);
    await tab.isAccessible();
  }
  await tab.go("quota", "viewed", "pages");
  await tab.shows("usage", 4);
  await tab.shows("remaining", 6);
  await tab.go("defaults");
  await tab.sees("7 per day");
}

export async function aServiceFindsUsersAndCannotChange(open) {
  await quota("served", "calls", "daily", 10, 3);
  const tab = await open();
  await tab.signIn(await token("service"));
  assert.deepEqual(await tab.page.locator("header nav a").allInnerTexts(), ["Find a user", "Defaults"]);
  await tab.go("user", "served");
  await tab.sees("10 per day");
  await mayChangeNothing(tab);
  await tab.go("quota", "served", "calls");
  await tab.shows("usage", 3);
  await mayChangeNothing(tab);
}

export async function anOwnerSeesTheOwnPageOnly(open) {
  await quota("owner 1", "calls", "daily", 10, 3);
  await quota("neighbour", "secrets", "daily", 10, 3);
  const secret = await token("user", "owner 1");
  const tab = await open();
  await tab.signIn(secret);
  await tab.page.getByRole("heading", { name: "My quotas" }).waitFor();
  await tab.sees("10 per day");
  await tab.page.reload();
  await tab.sees("10 per day");
  for (const to of [["near"], ["user", "neighbour"], ["quota", "neighbour", "secrets"], ["tokens"], ["new"]]) {
    await tab.go(...to);
    assert.equal(await tab.page.locator("header nav").count(), 0);
    assert.doesNotMatch(await tab.text(), /3 used|neighbour/);
    await mayChangeNothing(tab);
  }
  await tab.go("user");
  await tab.page.getByRole("link", { name: "calls" }).click();
  await tab.shows("usage", 3);
  await mayChangeNothing(tab);
  await tab.isAccessible();
}

export async function aRevokedTokenEndsTheVisit(open) {
  const made = await api("POST", "/tokens", { role: "viewer", name: "soon gone" });
  const tab = await open();
  await tab.signIn(made.token);
  await tab.go("defaults");
  assert.equal((await api("DELETE", `/tokens/${made.id}`)).status, 204);
  await tab.button("Refresh").click();
  await tab.sees("Your token is no longer valid. Sign in with another one.");
  assert.equal(await tab.page.evaluate(() => sessionStorage.length), 0);
}

export async function aSignedTokenIsItsUsersUntilItExpires(open) {
  await quota("日本 jwt", "calls", "daily", 10, 3);
  const tab = await open();
  // The server has 30 s of grace.
  await tab.signIn(await jwt({ sub: "日本 jwt" }, -10));
  await tab.page.getByRole("heading", { name: "My quotas" }).waitFor();
  await tab.page.getByRole("link", { name: "calls" }).click();
  await tab.shows("usage", 3);
  await mayChangeNothing(tab);
  await tab.page.getByText("Your token is no longer valid. Sign in with another one.").waitFor({ timeout: 2 * PATIENCE_MS });
  assert.equal(await tab.page.evaluate(() => sessionStorage.length), 0);
  // Whoever signs in again is where they were.
  await tab.page.locator("[name=token]").fill(await jwt({ sub: "boss/1", role: "admin" }, 600));
  await tab.page.keyboard.press("Enter");
  await tab.page.getByRole("heading", { name: "calls" }).waitFor();
  await tab.button("Reset usage").click();
  await tab.confirms("Reset usage");
  await tab.sees("Signed token of");
  await tab.shows("usage", 0);
}
