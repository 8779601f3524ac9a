// One user's quotas, and the way to them.

import { useState } from "./vendor/preact-hooks.js";
import { path, query } from "./api.js";
import { Empty, Field, Freshness, Id, Loaded, Page, Pager, focusFault, go, href, html, useSession } from "./kit.js";
import { useLive, usePages } from "./live.js";
import { FRESH_S, QuotaTable } from "./near.js";
import { t } from "./text.js";

const ROWS = 25;

export function User({ ids: [userId] }) {
  const { role, mayChange } = useSession();
  const own = role === "user";
  const title = own ? t("nav.mine") : userId === undefined ? t("nav.user") : userId;
  return html`
    <${Page} title=${title} lead=${own ? html`<${Id} id=${userId} />` : userId === undefined ? t("find.lead") : t("find.quotas")}
      above=${!own && userId !== undefined && html`<${Find} userId=${userId} />`}
      actions=${mayChange && userId !== undefined && html`<a class="button primary" href=${href("new", userId)}>${t("nav.new")}</a>`}>
      ${userId !== undefined ? html`<${Quotas} userId=${userId} />` : html`<${Find} />`}
    <//>
  `;
}

function Find({ userId }) {
  const [typed, setTyped] = useState(userId ?? "");
  const [fault, setFault] = useState(null);
  const find = (event) => {
    event.preventDefault();
    try {
      path(typed);
    } catch {
      setFault(t("error.noId"));
      focusFault(event.target);
      return;
    }
    setFault(null);
    go("user", typed);
  };
  return html`<form class="filter find" role="search" onSubmit=${find} noValidate>
    <${Field} label=${t("field.user")} fault=${fault}>
      ${(field) => html`<input ...${field} name="user_id" type="search" autocomplete="off" autocapitalize="none" spellcheck=${false}
        value=${typed} onInput=${(event) => setTyped(event.target.value)} />`}
    <//>
    <button type="submit" class=${userId === undefined ? "primary" : ""}>${t("find.button")}</button>
  </form>`;
}

function Quotas({ userId }) {
  const { call } = useSession();
  const pages = usePages(userId);
  const load = async (signal) =>
    (await call("GET", `quotas/${path(userId)}${query({ limit: ROWS, cursor: pages.cursor })}`, { signal })).data;
  const live = useLive(load, `${userId}/${pages.cursor}`, FRESH_S);
  return html`
    <${Freshness} live=${live} />
    <${Loaded} live=${live}>${({ quotas, next_cursor }) => html`
      ${quotas.length === 0
        ? html`<${Empty}><p>${t("find.empty", { user: html`<${Id} id=${userId} />` })}</p><p class="hint">${t("find.emptyHint")}</p><//>`
        : html`<${QuotaTable} quotas=${quotas} caption=${t("find.quotas")} />`}
      <${Pager} pages=${pages} next=${next_cursor} />
    `}<//>
  `;
}
