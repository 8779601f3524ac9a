// Signing in with a token.

import { useRef, useState } from "./vendor/preact-hooks.js";
import { whoIs } from "./api.js";
import { Field, Id, Notice, Page, focusFault, html } from "./kit.js";
import * as text from "./text.js";
import { t } from "./text.js";

export function SignIn({ ended, onSignIn }) {
  const [token, setToken] = useState("");
  const [failure, setFailure] = useState(null);
  const [busy, setBusy] = useState(false);
  const form = useRef();

  async function submit(event) {
    event.preventDefault();
    if (busy) return;
    const fail = (found) => {
      setFailure(found);
      setBusy(false);
      focusFault(form.current);
    };
    setFailure(null);
    const secret = token.trim();
    if (!secret) return fail({ kind: "unauthorized" });
    setBusy(true);
    try {
      const found = await whoIs(secret);
      onSignIn({ token: secret, ...found });
    } catch (failed) {
      if (!failed.kind) throw failed;
      fail(failed);
    }
  }

  const ofToken = failure?.kind === "unauthorized";
  const why = failure && text.failure(ofToken ? { ...failure, kind: "wrongToken" } : failure);
  return html`<div class="card narrow">
    <${Page} title=${t("signin.title")} lead=${t("signin.lead")}>
      ${ended && !failure && html`<${Notice} tone="warning">${t("signin.ended")}<//>`}
      ${why && !ofToken && html`<${Notice} tone="error">${why}<//>`}
      <form ref=${form} onSubmit=${submit} noValidate>
        <${Field} label=${t("signin.token")} fault=${ofToken && why}>
          ${(field) => html`<input ...${field} name="token" type="password" autocomplete="off" autofocus
            value=${token} onInput=${(event) => setToken(event.target.value)} />`}
        <//>
        <p class="unseen" role="alert">${why}</p>
        <div class="buttons">
          <button type="submit" class="primary" aria-disabled=${String(busy)}>${t(busy ? "signin.checking" : "signin.button")}</button>
        </div>
        <p class="hint">${t("signin.none", { command: html`<${Id} id="quotalog token create" />` })}</p>
      </form>
    <//>
  </div>`;
}
