// One quota: how full it is, what was used when, what can be done about it, and who did what.

import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { path, query } from "./api.js";
import { Past } from "./chart.js";
import {
  Bar, Confirm, Countdown, Empty, Field, Freshness, Id, LimitFields, Loaded, Notice, Page, Pager, Table, UNITS_MAX, When,
  focusFault, freshKey, href, html, invalid, policyOf, units, useSession,
} from "./kit.js";
import { useLive, usePages } from "./live.js";
import { FRESH_S } from "./near.js";
import * as text from "./text.js";
import { t } from "./text.js";

export function Quota({ ids: [userId, resource], say }) {
  const { call, role, mayChange } = useSession();
  const at = () => `quotas/${path(userId, resource)}`;
  const load = async (signal) => {
    try {
      const { data, etag } = await call("GET", at(), { signal });
      return { quota: data, etag };
    } catch (failure) {
      if (failure.kind === "notFound") return { quota: null };
      throw failure;
    }
  };
  const live = useLive(load, `${userId}/${resource}`, FRESH_S);
  const [box, setBox] = useState(null);
  // How often something was changed here, so that what tells of the past is asked for again.
  const [changes, setChanges] = useState(0);
  const names = { user: html`<${Id} id=${userId} />`, resource: html`<${Id} id=${resource} />` };

  /** Sends a change, shows what the server says of it, and asks for all that may have changed with it. */
  const change = async (method, to, options) => {
    const answer = await call(method, to, options);
    if (answer.data) live.put({ quota: answer.data, etag: answer.etag ?? live.data?.etag });
    live.refresh();
    setChanges((count) => count + 1);
    return answer.data;
  };
  // A box speaks of what was on the page when it was opened, and guards by that.
  const open = (Box, held = {}) => setBox({ Box, held: { ...live.data, ...held } });
  const own = role === "user";

  return html`<${Page} title=${resource} lead=${html`${t("field.user")}: <a href=${href("user", userId)}><${Id} id=${userId} /></a>`}>
    <${Freshness} live=${live} />
    <${Loaded} live=${live}>${({ quota }) => quota === null
      ? html`<${Empty}>
          <p>${t(own ? "quota.noneOwn" : "quota.none", names)}</p>
          ${mayChange && html`<p><a class="button primary" href=${href("new", userId, resource)}>${t("nav.new")}</a></p>`}
        <//>`
      : html`<div class="card"><${Now} quota=${quota} />
          ${mayChange && html`<div class="buttons">
            <button type="button" onClick=${() => open(Reset)}>${t("reset.button")}</button>
            <button type="button" onClick=${() => open(Refund)}>${t("refund.button")}</button>
            ${quota.source === "policy" && html`<button type="button" class="danger quiet" onClick=${() => open(Remove)}>${t("remove.button")}</button>`}
          </div>`}
        </div>
        ${mayChange && html`<${Edit} live=${live} open=${open} load=${load} />`}`}
    <//>
    ${live.data && html`<${Past} userId=${userId} resource=${resource} quota=${live.data.quota} changes=${changes} />`}
    ${mayChange && html`<${Trail} userId=${userId} resource=${resource} changes=${changes} />`}
    ${box && html`<${box.Box} ...${box.held} at=${at()} names=${names} change=${change} say=${say} onClose=${() => setBox(null)} />`}
  <//>`;
}

/** The numbers of the present window. */
function Now({ quota }) {
  const fact = (name, value, hint) => html`<div><dt>${name}</dt><dd>${value}${hint && html`<small>${hint}</small>`}</dd></div>`;
  return html`
    <${Bar} quota=${quota} large />
    <dl class="facts">
      ${fact(t("col.used"), html`<span data-name="usage">${text.number(quota.usage)}</span>`, text.span(quota))}
      ${fact(t("field.limit"), text.limit(quota), t(`source.${quota.source}`))}
      ${fact(t("col.left"), html`<span data-name="remaining">${text.number(quota.remaining)}</span>`)}
      ${fact(t("col.resets"), html`<${Countdown} to=${quota.reset_at} />`, text.instant(Date.parse(quota.reset_at)))}
    </dl>
  `;
}

/** What was reset or refunded is what the server says, also if the window of the box was over by then. */
function told(name, held, quota) {
  const values = { window: text.span(quota), count: quota.usage, limit: text.limit(quota) };
  if (quota.window_start === held.window_start && quota.window === held.window) return t(`${name}.done`, values);
  return t(`${name}.doneLater`, { ...values, before: text.span(held) });
}

function Reset({ quota, at, names, change, say, onClose }) {
  const key = useRef(freshKey());
  const confirm = async () => {
    // A repeated try, after an answer that was lost, is the same reset.
    const after = await change("POST", `${at}/reset`, { headers: { "Idempotency-Key": key.current } });
    onClose();
    say(told("reset", quota, after));
  };
  return html`<${Confirm} title=${t("reset.title")} action=${t("reset.button")} danger onConfirm=${confirm} onClose=${onClose}>
    <p>${t("reset.what", { ...names, window: text.span(quota), count: quota.usage })}</p>
    <p class="hint">${t("reset.hint", { limit: text.limit(quota) })}</p>
  <//>`;
}

function Refund({ quota, at, names, change, say, onClose }) {
  const [typed, setTyped] = useState("1");
  const key = useRef(freshKey());
  const type = (event) => {
    // Another amount is another refund.
    key.current = freshKey();
    setTyped(event.target.value);
  };
  const confirm = async () => {
    const amount = units(typed);
    if (amount === null) throw invalid("amount");
    const after = await change("POST", `${at}/refund`, { body: { amount }, headers: { "Idempotency-Key": key.current } });
    onClose();
    say(told("refund", quota, after));
  };
  return html`<${Confirm} title=${t("refund.title")} action=${t("refund.button")} onConfirm=${confirm} onClose=${onClose}>
    ${({ faults }) => html`
      <p>${t("refund.what", { ...names, window: text.span(quota), count: quota.usage })}</p>
      <${Field} label=${t("field.amount")} fault=${faults.amount}>
        ${(field) => html`<input ...${field} name="amount" inputmode="numeric" autocomplete="off" class="numeric" value=${typed} onInput=${type} />`}
      <//>
      <p class="hint">${t("refund.hint")}</p>
    `}
  <//>`;
}

function Remove({ quota, etag, at, names, change, say, onClose }) {
  const confirm = async () => {
    try {
      await change("DELETE", at, { headers: { "If-Match": etag } });
      onClose();
      say(t("remove.done"));
    } catch (failure) {
      if (failure.kind !== "changed" && failure.kind !== "notFound") throw failure;
      onClose();
      say(t("remove.changed"), "warning");
    }
  };
  return html`<${Confirm} title=${t("remove.title")} action=${t("remove.button")} danger onConfirm=${confirm} onClose=${onClose}>
    <p>${t("remove.what", { ...names, limit: text.limit(quota) })}</p>
    <p class="hint">${t("remove.hint", { window: text.span(quota), count: quota.usage })}</p>
  <//>`;
}

/** One tenth more, rounded up. */
const tenthMore = (limit_count) => Math.min(UNITS_MAX, limit_count + Math.ceil(limit_count / 10));

/**
 * The form of the policy. It follows what is loaded until somebody types; from then on it is guarded by what it
 * began with, so that nobody's change in between is lost.
 */
function Edit({ live, open, load }) {
  const { quota, etag } = live.data;
  const [draft, setDraft] = useState(null);
  const [faults, setFaults] = useState({});
  const [theirs, setTheirs] = useState(null);
  const form = useRef();
  const value = draft ?? { window: quota.window, limit_count: String(quota.limit_count) };
  const base = draft?.base ?? { quota, etag };
  const type = (typed) => setDraft({ ...typed, base });
  const clear = () => {
    setDraft(null);
    setFaults({});
    setTheirs(null);
  };
  // Somebody else has changed it: what was typed stays, and the next try is guarded by what they have made.
  const onChanged = async () => {
    const found = await load();
    live.put(found);
    if (!found.quota) return;
    setDraft((old) => old && { ...old, base: found });
    setTheirs(found.quota);
  };
  const ask = (body, guard) => open(Save, { ...guard, body, onSaved: clear, onChanged });
  const submit = (event) => {
    event.preventDefault();
    const { body, faults: found } = policyOf(value);
    setFaults(found ?? {});
    if (found) return focusFault(form.current);
    ask(body, base);
  };
  const more = tenthMore(quota.limit_count);
  const changed = value.window !== quota.window || value.limit_count !== String(quota.limit_count);
  return html`<section class="card" aria-labelledby="edit">
    <h2 id="edit">${t("edit.title")}</h2>
    ${quota.source === "default" && html`<p class="hint">${t("edit.default")}</p>`}
    ${theirs && html`<${Notice} tone="warning">
      <p><strong>${t("edit.changed", { limit: text.limit(theirs) })}</strong> ${t("edit.whatNow")}</p>
      <p><button type="button" onClick=${clear}>${t("edit.takeTheirs")}</button></p>
    <//>`}
    <form ref=${form} onSubmit=${submit} noValidate>
      <${LimitFields} value=${value} onChange=${type} faults=${faults} />
      <div class="buttons">
        <button type="submit" class=${changed ? "primary" : ""} aria-disabled=${String(!changed)}
          onClick=${(event) => !changed && event.preventDefault()}>${t("edit.button")}</button>
        <button type="button" disabled=${more <= quota.limit_count}
          onClick=${() => ask({ window: quota.window, limit_count: more }, { quota, etag })}>
          ${t("edit.more", { count: more })}
        </button>
        ${draft && html`<button type="button" class="quiet" onClick=${clear}>${t("edit.undo")}</button>`}
      </div>
    </form>
  </section>`;
}

function Save({ quota, etag, body, at, names, change, say, onSaved, onChanged, onClose }) {
  const confirm = async () => {
    // A pair that a default serves has no policy yet, and must not have one by now.
    const guard = quota.source === "policy" ? { "If-Match": etag } : { "If-None-Match": "*" };
    try {
      const after = await change("PUT", at, { body, headers: guard });
      onClose();
      onSaved();
      say(t("edit.done", { limit: text.limit(after), count: after.usage, window: text.span(after), left: after.remaining }));
    } catch (failure) {
      if (failure.kind !== "changed") throw failure;
      await onChanged();
      onClose();
      say(t("edit.notSaved"), "warning");
    }
  };
  const otherWindow = body.window !== quota.window;
  return html`<${Confirm} title=${t("edit.confirm")} action=${t("edit.button")} onConfirm=${confirm} onClose=${onClose}>
    <p>${t(quota.source === "policy" ? "edit.what" : "edit.whatOwn", { ...names, before: text.limit(quota), after: text.limit(body) })}</p>
    <p class="hint">${otherWindow
      ? t(`edit.to.${body.window}`)
      : body.limit_count < quota.usage
        ? t("edit.below", { window: text.span(quota), count: quota.usage, at: text.instant(Date.parse(quota.reset_at)) })
        : t("edit.stays", { window: text.span(quota), count: quota.usage })}</p>
  <//>`;
}

/** Who did what to this quota, newest first. */
function Trail({ userId, resource, changes }) {
  const { call } = useSession();
  const pages = usePages(`${userId}/${resource}`);
  const to = `audit${query({ user_id: userId, resource, limit: 10, cursor: pages.cursor })}`;
  const live = useLive(async (signal) => (await call("GET", to, { signal })).data, to, 0);
  const first = useRef(true);
  useEffect(() => {
    if (!first.current) live.refresh();
    first.current = false;
  }, [changes]);
  const columns = [
    { title: t("trail.when"), cell: ({ at }) => html`<${When} at=${at} />` },
    { title: t("trail.who"), cell: ({ actor }) => actor.name ? html`<bdi>${actor.name}</bdi>` : t(`actor.${actor.kind}`, { id: actor.id }) },
    { title: t("trail.what"), cell: ({ action }) => (text.has(`action.${action}`) ? t(`action.${action}`) : action) },
    { title: t("trail.change"), cell: (entry) => changed(entry) },
  ];
  return html`<section aria-labelledby="trail">
    <h2 id="trail">${t("trail.title")}</h2>
    <${Loaded} live=${live}>${({ entries, next_cursor }) => html`
      ${entries.length === 0
        ? html`<${Empty}>${t("trail.empty")}<//>`
        : html`<${Table} caption=${t("trail.title")} columns=${columns} rows=${entries} rowKey=${({ id }) => id} />`}
      <${Pager} pages=${pages} next=${next_cursor} />
    `}<//>
  </section>`;
}

/** What an entry says of before and after. */
function changed({ before, after }) {
  const of = (facts) => {
    if (!facts) return "–";
    if ("limit_count" in facts) return text.limit(facts);
    if ("usage" in facts) return text.number(facts.usage);
    return JSON.stringify(facts);
  };
  return `${of(before)} → ${of(after)}`;
}
