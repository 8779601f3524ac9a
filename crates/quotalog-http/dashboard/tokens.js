// The tokens: make one, copy its secret once, revoke it. The secret is nowhere but in the box that shows it.

import { useRef, useState } from "./vendor/preact-hooks.js";
import { now, path, query } from "./api.js";
import {
  Confirm, Dialog, Empty, Field, Freshness, Id, Loaded, Notice, Page, Pager, Table, When, html, invalid, useSession,
} from "./kit.js";
import { useLive, usePages } from "./live.js";
import { t } from "./text.js";

const FRESH_S = 30;
const ROLES = ["viewer", "service", "user", "admin"];

export function Tokens({ say }) {
  const { call } = useSession();
  const pages = usePages("tokens");
  const to = `tokens${query({ limit: 50, cursor: pages.cursor })}`;
  const live = useLive(async (signal) => (await call("GET", to, { signal })).data, to, FRESH_S);
  const [box, setBox] = useState(null);
  const close = () => setBox(null);
  const columns = [
    { title: t("tokens.name"), cell: ({ name, id }) => html`${name ? html`<bdi>${name}</bdi>` : t("tokens.unnamed")}<small class="under"><span class="id">${id}</span></small>` },
    { title: t("tokens.role"), cell: ({ role, user_id }) => html`${t(`role.${role}`)}${user_id !== null && html`<small class="under"><${Id} id=${user_id} /></small>`}` },
    { title: t("tokens.created"), cell: ({ created_at }) => html`<${When} at=${created_at} />` },
    { title: t("tokens.expires"), cell: ({ expires_at }) => expires_at === null ? t("tokens.never")
      : html`<${When} at=${expires_at} />${Date.parse(expires_at) <= now() && html` <span class="badge">${t("tokens.expired")}</span>`}` },
    { title: t("col.actions"), unseen: true, kind: "numeric", cell: (token) => html`<button type="button" class="danger quiet"
      aria-label=${t("tokens.revokeThis", { id: token.name ?? token.id })} onClick=${() => setBox({ revoke: token })}>${t("tokens.revoke")}</button>` },
  ];
  const onMade = (token) => {
    live.refresh();
    setBox({ secret: token });
  };
  const onRevoked = () => {
    live.refresh();
    close();
    say(t("tokens.revoked"));
  };
  return html`<${Page} title=${t("nav.tokens")} lead=${t("tokens.lead")}
    actions=${html`<button type="button" class="primary" onClick=${() => setBox({ make: true })}>${t("tokens.new")}</button>`}>
    <${Freshness} live=${live} />
    <${Loaded} live=${live}>${({ tokens, next_cursor }) => html`
      ${tokens.length === 0
        ? html`<${Empty}>${t("tokens.empty")}<//>`
        : html`<${Table} caption=${t("nav.tokens")} columns=${columns} rows=${tokens} rowKey=${({ id }) => id} />`}
      <${Pager} pages=${pages} next=${next_cursor} />
    `}<//>
    ${box?.make && html`<${Make} key="make" call=${call} onMade=${onMade} onClose=${close} />`}
    ${box?.secret && html`<${Secret} key="secret" token=${box.secret} onClose=${close} />`}
    ${box?.revoke && html`<${Revoke} key="revoke" token=${box.revoke} call=${call} onRevoked=${onRevoked} onClose=${close} />`}
  <//>`;
}

function Make({ call, onMade, onClose }) {
  const [value, setValue] = useState({ role: "viewer", user_id: "", name: "", expires: "" });
  const type = (name) => (event) => setValue({ ...value, [name]: event.target.value });
  const confirm = async () => {
    const { role, user_id, name, expires } = value;
    const body = { role };
    if (role === "user") body.user_id = user_id;
    if (name) body.name = name;
    if (expires) {
      // A day is over when the next one begins.
      const end = Date.parse(`${expires}T00:00:00Z`) + 86_400_000;
      if (Number.isNaN(end)) throw invalid("expires_at");
      body.expires_at = new Date(end).toISOString();
    }
    onMade((await call("POST", "tokens", { body })).data);
  };
  return html`<${Confirm} title=${t("tokens.new")} action=${t("tokens.make")} onConfirm=${confirm} onClose=${onClose}>
    ${({ faults }) => html`
      <${Field} label=${t("tokens.role")} hint=${t(`role.${value.role}.hint`)} fault=${faults.role}>
        ${(field) => html`<select ...${field} name="role" value=${value.role} onChange=${type("role")}>
          ${ROLES.map((role) => html`<option key=${role} value=${role} selected=${role === value.role}>${t(`role.${role}`)}</option>`)}
        </select>`}
      <//>
      ${value.role === "user" && html`<${Field} label=${t("field.user")} fault=${faults.user_id}>
        ${(field) => html`<input ...${field} name="user_id" autocomplete="off" autocapitalize="none" spellcheck=${false}
          value=${value.user_id} onInput=${type("user_id")} />`}
      <//>`}
      <${Field} label=${t("tokens.nameOptional")} hint=${t("tokens.nameHint")} fault=${faults.name}>
        ${(field) => html`<input ...${field} name="name" autocomplete="off" maxlength="100" value=${value.name} onInput=${type("name")} />`}
      <//>
      <${Field} label=${t("tokens.lastDay")} hint=${t("tokens.lastDayHint")} fault=${faults.expires_at}>
        ${(field) => html`<input ...${field} name="expires" type="date" value=${value.expires} onInput=${type("expires")} />`}
      <//>
    `}
  <//>`;
}

function Secret({ token, onClose }) {
  const [copied, setCopied] = useState(false);
  const input = useRef();
  const copy = async () => {
    input.current.select();
    try {
      await navigator.clipboard.writeText(token.token);
      setCopied(true);
    } catch {
      // Without TLS a page has no clipboard; the secret is marked, to be copied by hand, or by the older way.
      setCopied(document.execCommand("copy"));
    }
  };
  // It cannot be seen again, so no stray key closes this box.
  return html`<${Dialog} title=${t("secret.title")} stubborn onClose=${onClose}>
    <p>${t("secret.lead")}</p>
    <${Field} label=${t("signin.token")}>
      ${(field) => html`<input ...${field} ref=${input} name="secret" class="id" readonly value=${token.token} onFocus=${(event) => event.target.select()} />`}
    <//>
    <div role="status">${copied && html`<${Notice} tone="success">${t("secret.copied")}<//>`}</div>
    <div class="buttons end">
      <button type="button" onClick=${onClose}>${t("secret.done")}</button>
      <button type="button" class="primary" onClick=${copy}>${t("secret.copy")}</button>
    </div>
  <//>`;
}

function Revoke({ token, call, onRevoked, onClose }) {
  const confirm = async () => {
    try {
      await call("DELETE", `tokens/${path(token.id)}`);
    } catch (failure) {
      // Somebody else was faster.
      if (failure.kind !== "notFound") throw failure;
    }
    onRevoked();
  };
  return html`<${Confirm} title=${t("tokens.revokeTitle")} action=${t("tokens.revoke")} danger onConfirm=${confirm} onClose=${onClose}>
    <p>${t("tokens.revokeWhat", { id: html`<${Id} id=${token.name ?? token.id} />` })}</p>
  <//>`;
}
