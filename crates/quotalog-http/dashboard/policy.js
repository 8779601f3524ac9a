// A new policy. It makes one where there is none, and changes none that is there.

import { useRef, useState } from "./vendor/preact-hooks.js";
import { path } from "./api.js";
import { Field, Id, LimitFields, Notice, Page, faultsOf, focusFault, go, href, html, policyOf, useSession } from "./kit.js";
import * as text from "./text.js";
import { t } from "./text.js";

export function NewPolicy({ ids: [givenUser = "", givenResource = ""], say }) {
  const { call } = useSession();
  const [value, setValue] = useState({ userId: givenUser, resource: givenResource, window: "hourly", limit_count: "" });
  const [failure, setFailure] = useState(null);
  const [faults, setFaults] = useState({});
  const [busy, setBusy] = useState(false);
  const form = useRef();

  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const { userId, resource } = value;
    const { body, faults: found = {} } = policyOf(value);
    for (const [name, id] of [["user_id", userId], ["resource", resource]]) {
      try {
        path(id);
      } catch {
        found[name] = t("error.noId");
      }
    }
    setFaults(found);
    setFailure(null);
    if (Object.keys(found).length) return focusFault(form.current);
    setBusy(true);
    try {
      const { data } = await call("PUT", `quotas/${path(userId, resource)}`, { body, headers: { "If-None-Match": "*" } });
      say(t("new.done", { limit: text.limit(data), count: data.usage, window: text.span(data), left: data.remaining }), "success", `quota/${userId}/${resource}`);
      go("quota", userId, resource);
    } catch (failed) {
      if (!failed.kind) throw failed;
      setFailure(failed);
      setFaults(faultsOf(failed));
      setBusy(false);
      focusFault(form.current);
    }
  }

  const input = (name, label, key, hint) => html`<${Field} label=${label} hint=${hint} fault=${faults[name]}>
    ${(field) => html`<input ...${field} name=${name} autocomplete="off" autocapitalize="none" spellcheck=${false} required
      value=${value[key]} onInput=${(event) => setValue({ ...value, [key]: event.target.value })} />`}
  <//>`;
  return html`<${Page} title=${t("nav.new")} lead=${t("new.lead")}>
    <form ref=${form} class="card form" onSubmit=${submit} noValidate>
      ${input("user_id", t("field.user"), "userId", t("new.idHint"))}
      ${input("resource", t("field.resource"), "resource", t("new.resourceHint"))}
      <${LimitFields} value=${value} onChange=${setValue} faults=${faults} />
      <p class="hint">${t(`new.${value.window}`)}</p>
      ${failure && html`<${Notice} tone="error">${failure.kind === "changed"
        ? html`<p>${t("new.exists", { user: html`<${Id} id=${value.userId} />`, resource: html`<${Id} id=${value.resource} />` })}</p>
            <p><a href=${href("quota", value.userId, value.resource)}>${t("new.open")}</a></p>`
        : text.failure(failure)}<//>`}
      <div class="buttons">
        <button type="submit" class="primary" aria-disabled=${String(busy)}>${t(busy ? "working" : "new.button")}</button>
      </div>
    </form>
  <//>`;
}
