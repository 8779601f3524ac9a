// What the pages are made of. Every id and every text goes into the page as text: components make no markup of it.

import { createContext, h } from "./vendor/preact.js";
import { useContext, useEffect, useId, useLayoutEffect, useRef, useState } from "./vendor/preact-hooks.js";
import htm from "./vendor/htm.js";
import { useNow } from "./live.js";
import * as text from "./text.js";
import { t } from "./text.js";

export const html = htm.bind(h);

/** Largest limit, and largest number of units at once, that the server takes. */
export const UNITS_MAX = 1_000_000;

/** `{call, role, userId, mayChange}`: who is signed in, and the way to the API. */
export const Session = createContext(null);
export const useSession = () => useContext(Session);

/** The address of a page; ids are written as the server takes them. */
export const href = (page, ...ids) => `#/${[page, ...ids.map((id) => encodeURIComponent(id.toWellFormed()))].join("/")}`;
export const go = (...to) => (location.hash = href(...to));

/** An id: whatever it holds, it is seen as it is and turns nothing around it. */
export const Id = ({ id }) => html`<bdi class="id">${id}</bdi>`;

export function Page({ title, lead, above, actions, children }) {
  const heading = useRef();
  const plain = Array.isArray(title) ? title.join("") : title;
  useEffect(() => {
    document.title = `${plain} · quotalog`;
  }, [plain]);
  return html`
    ${above}
    <div class="head">
      <div>
        <h1 ref=${heading} tabindex="-1"><bdi>${title}</bdi></h1>
        ${lead && html`<p class="lead">${lead}</p>`}
      </div>
      ${actions && html`<div class="actions">${actions}</div>`}
    </div>
    ${children}
  `;
}

/** Something that is said where it belongs; `tone` is `error`, `warning`, `success` or `info`. */
export const Notice = ({ tone, children }) =>
  html`<div class=${`notice ${tone}`} role=${tone === "error" ? "alert" : "status"}>${children}</div>`;

export const Loading = () => html`<p class="loading" role="status"><span class="spinner" aria-hidden="true"></span>${t("loading")}</p>`;

export const Empty = ({ children }) => html`<div class="empty">${children}</div>`;

/** What was loaded, or why it was not. */
export function Loaded({ live, children }) {
  if (live.data !== undefined) return children(live.data);
  if (!live.failure) return html`<${Loading} />`;
  return html`<${Notice} tone="error">
    <p>${text.failure(live.failure)}</p>
    <p><button type="button" onClick=${live.refresh}>${t("retry")}</button></p>
  <//>`;
}

/** How old the numbers are, and whether they stay fresh. */
export function Freshness({ live }) {
  const { at, failure, paused } = live;
  const stale = at && failure;
  return html`<div class="fresh">
    <div role="status" aria-live=${stale ? "polite" : "off"}>
      ${stale
        ? html`<p class="stale"><strong>${t("live.stale", { time: text.clock(at) })}</strong> ${text.failure(failure)}</p>`
        : at && html`<p class="updated">
            <span class=${paused ? "dot paused" : "dot"} aria-hidden="true"></span>
            ${t(paused ? "live.paused" : "live.updated", { time: text.clock(at) })}
          </p>`}
    </div>
    <div class="buttons">
      <button type="button" class="quiet" aria-pressed=${String(paused)} onClick=${() => live.setPaused(!paused)}>
        ${t("live.pause")}
      </button>
      <button type="button" class="quiet" onClick=${live.refresh}>${t("live.refresh")}</button>
    </div>
  </div>`;
}

/** How full a quota is. */
export function Bar({ quota, large }) {
  const { usage, limit_count, remaining } = quota;
  const full = Math.min(100, limit_count > 0 ? (usage * 100) / limit_count : 100);
  const level = full >= 100 ? "full" : full >= 80 ? "high" : "low";
  const share = text.percent(Math.min(usage, limit_count), limit_count);
  const over = usage > limit_count;
  const said = over ? t("bar.over", { count: usage - limit_count }) : remaining === 0 ? t("bar.full") : share;
  return html`<div class=${`gauge ${large ? "large" : ""} ${over ? "over" : ""}`}>
    <div class=${`bar ${level}`} role="meter" aria-label=${t("bar.label")} aria-valuemin="0" aria-valuemax="100"
      aria-valuenow=${Math.floor(full)} aria-valuetext=${over ? `${share}, ${said}` : said}>
      <div class="fill" style=${{ width: `${full}%` }}></div>
    </div>
    <span class=${`said ${level}`} aria-hidden="true">${said}</span>
  </div>`;
}

/** The time to an instant, counting down. */
export function Countdown({ to }) {
  const at = Date.parse(to);
  const left = at - useNow();
  return html`<time class="count" datetime=${to} title=${text.instant(at)}>${left > 0 ? text.duration(left) : t("countdown.over")}</time>`;
}

export const When = ({ at }) => html`<time datetime=${at}>${text.instant(Date.parse(at))}</time>`;

/**
 * A table that becomes a card a row where the page is narrow. Its roles are written out, since a browser forgets them
 * when rows are no longer laid out as rows. `columns`: `{title, cell, unseen?, kind?}`, where `kind` is `numeric`, `name` or
 * `wide`.
 */
export function Table({ caption, columns, rows, rowKey, kind }) {
  return html`<table class=${`rows ${kind ?? ""}`} role="table">
    <caption class="unseen">${caption}</caption>
    <thead role="rowgroup">
      <tr role="row">
        ${columns.map(({ title, kind, unseen }) => html`<th key=${title} role="columnheader" scope="col" class=${kind}>
          ${unseen ? html`<span class="unseen">${title}</span>` : title}
        </th>`)}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map((row) => html`<tr key=${rowKey(row)} role="row">
        ${columns.map(({ title, cell, kind, unseen }) => html`<td key=${title} role="cell" class=${unseen ? `bare ${kind}` : kind}>
          ${!unseen && html`<span class="label" aria-hidden="true">${title}</span>`}
          <span class="value">${cell(row)}</span>
        </td>`)}
      </tr>`)}
    </tbody>
  </table>`;
}

/** The ways through a list. */
export function Pager({ pages, next }) {
  if (!pages.back && !next) return null;
  return html`<nav class="pager" aria-label=${t("pager.label")}>
    <button type="button" disabled=${!pages.back} onClick=${pages.back}>${t("pager.back")}</button>
    <button type="button" disabled=${!next} onClick=${() => pages.next(next)}>${t("pager.next")}</button>
  </nav>`;
}

/** An input with its label, its hint and its fault. `children` is a function of the fields that tie them together. */
export function Field({ label, hint, fault, children }) {
  const id = useId();
  const described = [hint && `${id}-hint`, fault && `${id}-fault`].filter(Boolean).join(" ");
  return html`<div class="field">
    <label for=${id}>${label}</label>
    ${children({ id, "aria-describedby": described || undefined, "aria-invalid": fault ? "true" : undefined })}
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
    ${fault && html`<p class="fault" id=${`${id}-fault`}>${fault}</p>`}
  </div>`;
}

/** A whole number from 1 to the largest, or null. */
export function units(value) {
  const digits = String(value).trim();
  const count = Number(digits);
  return /^\d{1,9}$/.test(digits) && count >= 1 && count <= UNITS_MAX ? count : null;
}

/** The fields of a limit. */
export function LimitFields({ value, onChange, faults = {} }) {
  return html`<div class="pair">
    <${Field} label=${t("field.limit")} fault=${faults.limit_count}>
      ${(field) => html`<input ...${field} name="limit_count" inputmode="numeric" autocomplete="off" class="numeric" required
        value=${value.limit_count} onInput=${(event) => onChange({ ...value, limit_count: event.target.value })} />`}
    <//>
    <${Field} label=${t("field.window")} fault=${faults.window}>
      ${(field) => html`<select ...${field} name="window" value=${value.window}
        onChange=${(event) => onChange({ ...value, window: event.target.value })}>
        ${["hourly", "daily"].map((name) => html`<option key=${name} value=${name} selected=${name === value.window}>${text.windowName(name)}</option>`)}
      </select>`}
    <//>
  </div>`;
}

/** The body of a policy, or the faults of its fields. */
export function policyOf({ window, limit_count }) {
  const count = units(limit_count);
  return count === null ? { faults: { limit_count: t("fault.limit_count.invalid") } } : { body: { window, limit_count: count } };
}

/** The faults that the server found, by field. */
export const faultsOf = (failure) =>
  Object.fromEntries((failure?.errors ?? []).map((found) => [found.field, text.fault(found)]));

/** The first invalid input of a form, so that whoever sent it is where the fault is. */
export function focusFault(form) {
  requestAnimationFrame(() => form?.querySelector("[aria-invalid=true]")?.focus());
}

/**
 * A box over the page. The browser keeps the focus inside, and brings it back. A `stubborn` one is not closed by a key
 * that was hit once.
 */
export function Dialog({ title, stubborn, onClose, children }) {
  const box = useRef();
  const over = useRef(false);
  const id = useId();
  useLayoutEffect(() => {
    const dialog = box.current;
    dialog.showModal();
    return () => {
      over.current = true;
      dialog.close();
    };
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    if (!stubborn) onClose();
  };
  // A browser closes a box by itself if it is asked twice.
  const onClosed = () => over.current || onClose();
  return html`<dialog ref=${box} aria-labelledby=${id} onCancel=${onCancel} onClose=${onClosed}>
    <h2 id=${id}>${title}</h2>
    ${children}
  </dialog>`;
}

/**
 * A box that says what will happen, and has it happen once however often it is told to. If `onConfirm` fails, the
 * box stays and says why.
 */
export function Confirm({ title, action, danger, onConfirm, onClose, children }) {
  const [busy, setBusy] = useState(false);
  const [failure, setFailure] = useState(null);
  const running = useRef(false);
  const form = useRef();
  async function confirm(event) {
    event.preventDefault();
    if (running.current) return;
    running.current = true;
    setBusy(true);
    setFailure(null);
    try {
      await onConfirm();
    } catch (failed) {
      if (!failed.kind) throw failed;
      setFailure(failed);
      focusFault(form.current);
    }
    running.current = false;
    setBusy(false);
  }
  const faults = faultsOf(failure);
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form ref=${form} onSubmit=${confirm} noValidate>
      ${typeof children === "function" ? children({ faults }) : children}
      ${failure && html`<${Notice} tone="error">${text.failure(failure)}<//>`}
      <div class="buttons end">
        <button type="button" onClick=${onClose}>${t("cancel")}</button>
        <button type="submit" class=${danger ? "danger" : "primary"} aria-disabled=${String(busy)}>
          ${busy ? t("working") : action}
        </button>
      </div>
    </form>
  <//>`;
}

/** A failure that the page finds before the server does. */
export const invalid = (field, code = "invalid") => ({ kind: "invalid", status: 422, errors: [{ field, code }] });

/** What marks a request and its repetitions as one. */
export const freshKey = () => crypto.getRandomValues(new Uint32Array(4)).join("-");
