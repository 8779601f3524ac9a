// Who is near the limit: the fullest quotas, fullest first, always fresh.

import { useEffect, useState } from "./vendor/preact-hooks.js";
import { query } from "./api.js";
import { Bar, Countdown, Empty, Field, Freshness, Id, Loaded, Page, Table, go, href, html, useSession } from "./kit.js";
import { useLive } from "./live.js";
import * as text from "./text.js";
import { t } from "./text.js";

export const FRESH_S = 5;
// The server looks at every pair that was used today. It gives up after a minute itself.
const SEARCH_MS_MAX = 70_000;

export function Near({ ids: [resource = ""] }) {
  const { call, mayChange } = useSession();
  const [typed, setTyped] = useState(resource);
  useEffect(() => setTyped(resource), [resource]);
  const [count, setCount] = useState("20");
  const to = `quotas${query({ sort: "used_percent", limit: count, resource })}`;
  const live = useLive(async (signal) => (await call("GET", to, { signal, patienceMs: SEARCH_MS_MAX })).data.quotas, to, FRESH_S);
  const filter = (event) => {
    event.preventDefault();
    // In the address, so that the way back leads to the same list.
    go("near", ...(typed ? [typed] : []));
  };
  return html`<${Page} title=${t("nav.near")} lead=${t("near.lead")}
    actions=${mayChange && html`<a class="button primary" href=${href("new")}>${t("nav.new")}</a>`}>
    <form class="filter" onSubmit=${filter} role="search">
      <${Field} label=${t("field.resource")}>
        ${(field) => html`<input ...${field} type="search" autocomplete="off" autocapitalize="none" spellcheck=${false}
          placeholder=${t("near.all")} value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}
      <//>
      <${Field} label=${t("near.show")}>
        ${(field) => html`<select ...${field} value=${count} onChange=${(event) => setCount(event.target.value)}>
          ${["20", "50", "100"].map((value) => html`<option key=${value} value=${value} selected=${value === count}>${text.number(Number(value))}</option>`)}
        </select>`}
      <//>
      <button type="submit">${t("near.filter")}</button>
    </form>
    <${Freshness} live=${live} />
    <${Loaded} live=${live}>${(quotas) => quotas.length === 0
      ? html`<${Empty}>${resource ? t("near.emptyResource", { resource: html`<${Id} id=${resource} />` }) : t("near.empty")}<//>`
      : html`<${QuotaTable} quotas=${quotas} caption=${t("nav.near")} withUser />`}
    <//>
  <//>`;
}

/** Quotas, one a row. */
export function QuotaTable({ quotas, caption, withUser }) {
  const columns = [
    withUser && { title: t("field.user"), kind: "name", cell: ({ user_id }) => html`<a href=${href("user", user_id)}><${Id} id=${user_id} /></a>` },
    { title: t("field.resource"), kind: "name", cell: ({ user_id, resource }) => html`<a href=${href("quota", user_id, resource)}><${Id} id=${resource} /></a>` },
    { title: t("col.full"), kind: "wide", cell: (quota) => html`<${Bar} quota=${quota} />` },
    { title: t("col.used"), kind: "numeric", cell: ({ usage }) => text.number(usage) },
    { title: t("field.limit"), kind: "numeric", cell: (quota) => text.limit(quota) },
    { title: t("col.left"), kind: "numeric", cell: ({ remaining }) => text.number(remaining) },
    { title: t("col.resets"), kind: "numeric", cell: ({ reset_at }) => html`<${Countdown} to=${reset_at} />` },
  ].filter(Boolean);
  return html`<${Table} kind=${withUser ? "quotas pairs" : "quotas"} caption=${caption} columns=${columns} rows=${quotas}
    rowKey=${({ user_id, resource }) => `${user_id}/${resource}`} />`;
}
