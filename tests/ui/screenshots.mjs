// Takes the pictures of the README: `scripts/screenshots` starts a server for this, and says where to put them.

import assert from "node:assert/strict";
import { statSync } from "node:fs";
import { join } from "node:path";
import { ADMIN, api, launch, quota } from "./browser.mjs";

const BYTES_MAX = 150_000;
const [folder] = process.argv.slice(2);

await quota("acme-robotics", "api-calls", "hourly", 800, 610);
await api("PUT", "/quotas/acme-robotics/api-calls", { window: "hourly", limit_count: 1_000 });
for (const [user, resource, window, limit, used] of [
  ["tenant-0042", "exports", "daily", 20, 20],
  ["blue-harbor", "emails", "daily", 500, 497],
  ["acme-robotics", "tokens.large-model", "daily", 250_000, 231_400],
  ["north-wind", "api-calls", "hourly", 1_000, 842],
  ["maria@example.com", "renders", "daily", 40, 26],
  ["acme-robotics", "exports", "daily", 25, 14],
  ["tenant-0007", "api-calls", "hourly", 2_000, 760],
  ["blue-harbor", "api-calls", "hourly", 5_000, 1_150],
]) await quota(user, resource, window, limit, used);
await quota("old-mill", "api-calls", "daily", 2_000, 1_600);
await quota("old-mill", "api-calls", "daily", 1_500);

const browser = await launch();

async function take(name, to, { height, ...options }) {
  const tab = await browser.open(options);
  await tab.page.setViewportSize({ width: options.width, height });
  await tab.signIn(ADMIN);
  await tab.go(...to);
  await tab.settled();
  // Bars grow to their length, and the chart is painted.
  await tab.page.evaluate(() => Promise.all(document.getAnimations().map(({ finished }) => finished)));
  const path = join(folder, name);
  await tab.page.screenshot({ path });
  await tab.close();
  const { size } = statSync(path);
  assert.ok(size < BYTES_MAX, `${path}: ${size} bytes`);
}

await take("near-the-limit.png", ["near"], { width: 1100, height: 800 });
await take("quota.png", ["quota", "acme-robotics", "api-calls"], { width: 1100, height: 1120, theme: "dark" });
await take("phone.png", ["near"], { width: 390, height: 800 });
await browser.close();
