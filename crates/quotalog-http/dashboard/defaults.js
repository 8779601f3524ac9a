// The defaults: what serves every user who has no policy of their own for a resource.

import { useState } from "./vendor/preact-hooks.js";
import { path, query } from "./api.js";
import {
  Confirm, Empty, Field, Freshness, Id, LimitFields, Loaded, Page, Pager, Table, When, html, invalid, policyOf, useSession,
} from "./kit.js";
import { useLive, usePages } from "./live.js";
import * as text from "./text.js";
import { t } from "./text.js";

const FRESH_S = 30;
const at = (resource) => `defaults/${path(resource)}`;

export function Defaults({ say }) {
  const { call, mayChange } = useSession();
  const pages = usePages("defaults");
  const to = `defaults${query({ limit: 50, cursor: pages.cursor })}`;
  const live = useLive(async (signal) => (await call("GET", to, { signal })).data, to, FRESH_S);
  const [box, setBox] = useState(null);

  // A list has no tags to guard by, so the default is read again when its box opens.
  const open = async (Box, resource) => {
    try {
      const { data, etag } = await call("GET", at(resource));
      setBox({ Box, held: { kept: data, etag } });
    } catch (failure) {
      if (!failure.kind) throw failure;
      live.refresh();
      say(text.failure(failure), "error");
    }
  };
  const change = async (method, resource, options) => {
    const answer = await call(method, at(resource), options);
    live.refresh();
    return answer.data;
  };
  const columns = [
    { title: t("field.resource"), cell: ({ resource }) => html`<${Id} id=${resource} />` },
    { title: t("field.limit"), kind: "numeric", cell: (kept) => text.limit(kept) },
    { title: t("col.updated"), cell: ({ updated_at }) => html`<${When} at=${updated_at} />` },
    mayChange && {
      title: t("col.actions"),
      unseen: true,
      kind: "numeric",
      cell: ({ resource }) => html`<span class="buttons end">
        <button type="button" aria-label=${t("defaults.edit", { resource })} onClick=${() => open(Edit, resource)}>${t("edit.verb")}</button>
        <button type="button" class="danger quiet" aria-label=${t("defaults.remove", { resource })} onClick=${() => open(Remove, resource)}>${t("remove.verb")}</button>
      </span>`,
    },
  ].filter(Boolean);
  return html`<${Page} title=${t("nav.defaults")} lead=${t("defaults.lead")}
    actions=${mayChange && html`<button type="button" class="primary" onClick=${() => setBox({ Box: Edit, held: {} })}>${t("defaults.new")}</button>`}>
    <${Freshness} live=${live} />
    <${Loaded} live=${live}>${({ defaults, next_cursor }) => html`
      ${defaults.length === 0
        ? html`<${Empty}>${t("defaults.empty")}<//>`
        : html`<${Table} caption=${t("nav.defaults")} columns=${columns} rows=${defaults} rowKey=${({ resource }) => resource} />`}
      <${Pager} pages=${pages} next=${next_cursor} />
    `}<//>
    ${box && html`<${box.Box} ...${box.held} change=${change} refresh=${live.refresh} say=${say} onClose=${() => setBox(null)} />`}
  <//>`;
}

/** Sets a default that was read, or a new one; never over what somebody else has made since. */
function Edit({ kept, etag, change, refresh, say, onClose }) {
  const [value, setValue] = useState({
    resource: kept?.resource ?? "",
    window: kept?.window ?? "hourly",
    limit_count: kept ? String(kept.limit_count) : "",
  });
  const confirm = async () => {
    const { body, faults } = policyOf(value);
    if (faults) throw invalid("limit_count");
    try {
      const after = await change("PUT", value.resource, { body, headers: kept ? { "If-Match": etag } : { "If-None-Match": "*" } });
      onClose();
      say(t("defaults.done", { resource: html`<${Id} id=${value.resource} />`, limit: text.limit(after) }));
    } catch (failure) {
      if (failure.kind !== "changed") throw failure;
      refresh();
      throw { ...failure, kind: kept ? "defaultChanged" : "defaultExists" };
    }
  };
  const title = kept ? t("defaults.edit", { resource: kept.resource }) : t("defaults.new");
  return html`<${Confirm} title=${title} action=${t("edit.button")} onConfirm=${confirm} onClose=${onClose}>
    ${({ faults }) => html`
      ${!kept && html`<${Field} label=${t("field.resource")} fault=${faults.resource}>
        ${(field) => html`<input ...${field} name="resource" autocomplete="off" autocapitalize="none" spellcheck=${false}
          value=${value.resource} onInput=${(event) => setValue({ ...value, resource: event.target.value })} />`}
      <//>`}
      <${LimitFields} value=${value} onChange=${setValue} faults=${faults} />
      <p class="hint">${t("defaults.what")}</p>
    `}
  <//>`;
}

function Remove({ kept, etag, change, refresh, say, onClose }) {
  const confirm = async () => {
    try {
      await change("DELETE", kept.resource, { headers: { "If-Match": etag } });
      onClose();
      say(t("defaults.removed", { resource: html`<${Id} id=${kept.resource} />` }));
    } catch (failure) {
      if (failure.kind !== "changed") throw failure;
      refresh();
      throw { ...failure, kind: "defaultChanged" };
    }
  };
  return html`<${Confirm} title=${t("defaults.remove", { resource: kept.resource })} action=${t("remove.verb")} danger onConfirm=${confirm} onClose=${onClose}>
    <p>${t("defaults.removeWhat", { resource: html`<${Id} id=${kept.resource} />`, limit: text.limit(kept) })}</p>
  <//>`;
}
