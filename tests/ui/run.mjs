// Walks the dashboard of a running server as its readers do. `crates/quotalog/tests/it/dashboard.rs` starts the server
// and this, and says where they are: QUOTALOG_URL, QUOTALOG_ADMIN_TOKEN, CHROMIUM, UI_MODULES. Arguments choose walks.

import { launch } from "./browser.mjs";
import * as admin from "./admin.mjs";
import * as looks from "./looks.mjs";
import * as roles from "./roles.mjs";
import * as trouble from "./trouble.mjs";

const DURATION_MS_MAX = 300_000;
const AT_ONCE = 6;
const walks = Object.entries({ ...roles, ...admin, ...trouble, ...looks });
const chosen = walks.filter(([name]) => process.argv.length < 3 || process.argv.slice(2).some((part) => name.includes(part)));

setTimeout(() => {
  console.error("the walks took too long");
  process.exit(1);
}, DURATION_MS_MAX).unref();

const browser = await launch();
const left = [...chosen];
let failed = 0;

async function take([name, walk]) {
  const tabs = [];
  const beganMs = Date.now();
  const open = async (options) => {
    const tab = await browser.open(options);
    tabs.push(tab);
    return tab;
  };
  try {
    await walk(open);
    for (const tab of tabs) await tab.close();
    console.log(`ok      ${name} (${((Date.now() - beganMs) / 1_000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.error(`failed  ${name}\n${error.stack}`);
    for (const tab of tabs) {
      console.error(`at ${tab.page.url()}: ${tab.found.join("\n")}\n${await tab.text().catch(() => "(closed)")}`);
      await tab.context.close().catch(() => {});
    }
  }
}

// They wait for the pages most of the time, and each has users and a browser's memory of its own.
const several = Array.from({ length: AT_ONCE }, async () => {
  while (left.length) await take(left.shift());
});
await Promise.all(several);
await browser.close();
console.log(`${chosen.length - failed} of ${chosen.length} walks went well`);
process.exit(failed || !chosen.length ? 1 : 0);
