/** Makes the calls that standard input names, one JSON object a line, and prints what became of each. */

import { createInterface } from "node:readline";
import { argv, stdin } from "node:process";
import { inspect } from "node:util";

import { Client, Exhausted, type Item, type Options, QuotalogError } from "./quotalog.js";

interface Call {
  call: "check" | "consume" | "refund" | "batch";
  arguments: unknown[];
  options: Options;
}

const [url = "", token = "", deadlineS = ""] = argv.slice(2);
let client: Client | undefined;

async function made({ call, arguments: values, options }: Call): Promise<unknown> {
  client ??= new Client(url, token, { deadlineMs: Number(deadlineS) * 1_000 });
  const [userId, resource, amount] = values as [string, string, number | undefined];
  switch (call) {
    case "check":
      return await client.check(userId, resource);
    case "consume":
      return await client.consume(userId, resource, amount, options);
    case "refund":
      return await client.refund(userId, resource, amount, options);
    case "batch":
      return await client.batch(values[0] as Item[], options);
  }
}

function told(error: unknown): unknown {
  if (!(error instanceof QuotalogError)) throw error;
  // All that a log may show, causes included.
  const shown = inspect(error, { depth: Infinity });
  if (token.split(/\s/).some((part) => part !== "" && shown.includes(part))) throw new Error("the token is in an error");
  const outcome = { error: error.name, status: error.status ?? null, retry_after: error.retryAfter ?? null };
  if (!(error instanceof Exhausted)) return outcome;
  const { items, quota, remaining, resetAt } = error;
  const allowed = items.map((item) => item.allowed);
  // As the server writes it, in whole seconds.
  const reset_at = resetAt.toISOString().replace(".000", "");
  return { ...outcome, allowed, resource: quota.resource, remaining, reset_at };
}

for await (const line of createInterface({ input: stdin })) {
  const outcome = await made(JSON.parse(line)).then((answer) => ({ answer }), told);
  console.log(JSON.stringify(outcome));
}
