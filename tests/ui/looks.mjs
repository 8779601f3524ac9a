// Languages, widths, themes, the keyboard, and what screen readers are told.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { ADMIN, api, quota } from "./browser.mjs";
import { messages as en } from "../../crates/quotalog-http/dashboard/text/en.js";
import { messages as ja } from "../../crates/quotalog-http/dashboard/text/ja.js";
import { messages as ptBR } from "../../crates/quotalog-http/dashboard/text/pt-BR.js";

const DASHBOARD = new URL("../../crates/quotalog-http/dashboard/", import.meta.url);
const PAGES = [["near"], ["user"], ["user", "shown"], ["user", "nobody"], ["quota", "shown", "full"], ["quota", "shown", "over the limit by much"],
  ["quota", "nobody", "nothing"], ["defaults"], ["tokens"], ["new"]];

let filled;

/** What the pages show; made once. */
const fill = () => (filled ??= make());

async function make() {
  await quota("shown", "full", "hourly", 10, 10);
  await quota("shown", "over the limit by much", "daily", 900_000, 900_000);
  await quota("shown", "over the limit by much", "daily", 100_000);
  await quota("shown", "a-resource-with-a-name-that-is-as-long-as-some-systems-make-them/".slice(0, -1), "daily", 1_000_000, 820_000);
  await api("PUT", "/defaults/shown-default", { window: "hourly", limit_count: 3 });
  await api("POST", "/quotas/shown/shown-default/consume");
}

export async function everyMessageIsThereInEveryLanguage() {
  const values = (text) => (text.match(/\{\w+\}/g) ?? []).sort();
  for (const messages of [ja, ptBR]) {
    assert.deepEqual(Object.keys(messages), Object.keys(en));
    for (const [name, text] of Object.entries(messages)) assert.deepEqual(values(text), values(en[name]), name);
  }
}

export async function everyMessageIsSaidSomewhere() {
  const scripts = readdirSync(DASHBOARD).filter((name) => name.endsWith(".js"));
  const source = scripts.map((name) => readFileSync(new URL(name, DASHBOARD), "utf8")).join("");
  const names = [...source.matchAll(/"([\w.-]+)"/g)].map(([, name]) => name);
  // A name may be put together: `error.${kind}`.
  const templates = [...source.matchAll(/`((?:[\w.-]|\$\{[^{}]+\})+)`/g)].map(([, template]) =>
    new RegExp(`^${template.replace(/\./g, "\\.").replace(/\$\{[^{}]+\}/g, "[\\w.-]+")}$`));
  const said = new Set(names);
  const unsaid = Object.keys(en).filter((name) => !said.has(name) && !templates.some((template) => template.test(name)));
  assert.deepEqual(unsaid, []);
}

async function walk(tab, { accessible = true } = {}) {
  const isAccessible = async () => accessible && tab.isAccessible();
  await tab.fitsItsWidth();
  await isAccessible();
  await tab.signIn(ADMIN);
  for (const page of PAGES) {
    await tab.go(...page);
    await tab.readsWell();
    await tab.fitsItsWidth();
    await isAccessible();
  }
  await tab.go("quota", "shown", "full");
  await tab.page.locator("main .card .buttons button").first().click();
  await tab.box().waitFor();
  await tab.readsWell();
  await tab.fitsItsWidth();
  await isAccessible();
}

export async function inEnglishLightAndWide(open) {
  await fill();
  const tab = await open();
  await tab.visit();
  await tab.settled();
  await walk(tab);
  // Between a phone and a desk.
  await tab.page.keyboard.press("Escape");
  for (const page of [["near"], ["tokens"], ["quota", "shown", "over the limit by much"]]) {
    await tab.go(...page);
    for (const width of [1_000, 860, 740, 600]) {
      await tab.page.setViewportSize({ width, height: 900 });
      await tab.fitsItsWidth();
    }
  }
}

export async function inJapaneseDarkAndNarrow(open) {
  await fill();
  const tab = await open({ width: 320, locale: "ja-JP", theme: "dark" });
  await tab.visit();
  await tab.page.getByRole("heading", { name: "サインイン" }).waitFor();
  assert.equal(await tab.page.evaluate(() => document.documentElement.lang), "ja");
  await walk(tab);
}

export async function inPortugueseDarkAndNarrow(open) {
  await fill();
  const tab = await open({ width: 390, locale: "pt-PT", theme: "dark" });
  await tab.visit();
  await tab.page.getByRole("heading", { name: "Entrar" }).waitFor();
  // What axe looks at is the same in every language; both themes had their turn.
  await walk(tab, { accessible: false });
  await tab.page.keyboard.press("Escape");
  await tab.box().waitFor({ state: "detached" });
  // 900,000 as it is written there.
  await tab.go("quota", "shown", "over the limit by much");
  await tab.sees("900.000");
}

export async function languageAndAppearanceAreChosenAndKept(open) {
  const tab = await open({ locale: "de-DE", theme: "light" });
  await tab.signIn(ADMIN);
  await tab.page.getByRole("heading", { name: "Near the limit" }).waitFor();
  await tab.field("Language").selectOption("pt-BR");
  await tab.page.getByRole("heading", { name: "Perto do limite" }).waitFor();
  await tab.page.reload();
  await tab.page.getByRole("heading", { name: "Perto do limite" }).waitFor();
  await tab.field("Idioma").selectOption("ja");
  await tab.page.getByRole("heading", { name: "上限間近" }).waitFor();
  const background = () => tab.page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
  const light = await background();
  await tab.field("表示").selectOption("dark");
  const dark = await background();
  assert.notEqual(light, dark);
  await tab.page.reload();
  await tab.page.getByRole("heading", { name: "上限間近" }).waitFor();
  assert.equal(await background(), dark);
  await tab.field("表示").selectOption("auto");
  assert.equal(await background(), light);
}

export async function theKeyboardIsEnough(open) {
  await quota("keys", "r", "daily", 10, 3);
  const tab = await open();
  const { keyboard } = tab.page;
  const focused = () => tab.page.evaluate(() => document.activeElement.innerText || document.activeElement.name || document.activeElement.tagName);
  await tab.visit("#/quota/keys/r");
  await tab.field("Token").waitFor();
  await keyboard.type(ADMIN);
  await keyboard.press("Enter");
  await tab.shows("usage", 3);
  assert.equal(await focused(), "r");
  await tab.page.reload();
  await tab.shows("usage", 3);
  await keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the content");
  await keyboard.press("Enter");
  assert.equal(await tab.page.evaluate(() => document.activeElement.tagName), "MAIN");
  for (let presses = 0; (await focused()) !== "Reset usage"; presses += 1) {
    assert.ok(presses < 20);
    await keyboard.press("Tab");
  }
  await keyboard.press("Enter");
  await tab.box().waitFor();
  assert.ok(await tab.box().evaluate((box) => box.contains(document.activeElement)));
  await keyboard.press("Escape");
  await tab.box().waitFor({ state: "detached" });
  assert.equal(await focused(), "Reset usage");
  await keyboard.press("Enter");
  await keyboard.press("Tab");
  await keyboard.press("Enter");
  await tab.shows("usage", 0);
}
