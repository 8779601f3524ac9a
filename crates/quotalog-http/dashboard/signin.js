// Signing in: with a token, and with the user's id where the token is one user's and does not tell whose.

import { useRef, useState } from "./vendor/preact-hooks.js";
import { whoIs } from "./api.js";
import { Field, Notice, Page, focusFault, html } from "./kit.js";
import * as text from "./text.js";
import { t } from "./text.js";

export function SignIn({ ended, onSignIn }) {
  const [token, setToken] = useState("");
  const [userId, setUserId] = useState("");
  const [asksUser, setAsksUser] = useState(false);
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
    if (!token.trim()) return fail({ kind: "unauthorized" });
    setBusy(true);
    try {
      const secret = token.trim();
      const found = await whoIs(secret, asksUser ? [userId] : []);
      if (found.role !== "user" || found.userId) return onSignIn({ token: secret, ...found });
      if (asksUser) return fail({ kind: "otherUser" });
      setAsksUser(true);
      setBusy(false);
      requestAnimationFrame(() => form.current.querySelector("[name=user_id]").focus());
    } catch (failed) {
      if (!failed.kind) throw failed;
      fail(failed);
    }
  }
  const restart = () => {
    setAsksUser(false);
    setFailure(null);
    setToken("");
    setUserId("");
  };

  const why = failure && text.failure(failure.kind === "unauthorized" ? { ...failure, kind: "wrongToken" } : failure);
  const ofToken = failure?.kind === "unauthorized";
  const ofUser = failure?.kind === "otherUser" || failure?.kind === "noId" || failure?.kind === "invalid";
  return html`<div class="card narrow">
    <${Page} title=${t(asksUser ? "signin.user.title" : "signin.title")} lead=${t(asksUser ? "signin.user.lead" : "signin.lead")}>
      ${ended && !failure && html`<${Notice} tone="warning">${t("signin.ended")}<//>`}
      ${why && !ofToken && !ofUser && html`<${Notice} tone="error">${why}<//>`}
      <form ref=${form} onSubmit=${submit} noValidate>
        ${asksUser
          ? html`<${Field} key="user" label=${t("field.user")} fault=${ofUser && why}>
              ${(field) => html`<input ...${field} name="user_id" autocomplete="off" autocapitalize="none" spellcheck=${false}
                value=${userId} onInput=${(event) => setUserId(event.target.value)} />`}
            <//>`
          : html`<${Field} key="token" label=${t("signin.token")} fault=${ofToken && why}>
              ${(field) => html`<input ...${field} name="token" type="password" autocomplete="off" autofocus
                value=${token} onInput=${(event) => setToken(event.target.value)} />`}
            <//>`}
        <p class="unseen" role="alert">${why}</p>
        <div class="buttons">
          <button type="submit" class="primary" aria-disabled=${String(busy)}>${t(busy ? "signin.checking" : "signin.button")}</button>
          ${asksUser && html`<button type="button" onClick=${restart}>${t("signin.back")}</button>`}
        </div>
      </form>
    <//>
  </div>`;
}
