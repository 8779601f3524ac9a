// The dashboard: who is signed in, which page is shown, and what stands around it.

import { render } from "./vendor/preact.js";
import { useCallback, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./vendor/preact-hooks.js";
import { client, whoIs } from "./api.js";
import { Loading, Notice, Session, href, html } from "./kit.js";
import { Defaults } from "./defaults.js";
import { Near } from "./near.js";
import { NewPolicy } from "./policy.js";
import { Quota } from "./quota.js";
import { SignIn } from "./signin.js";
import { Tokens } from "./tokens.js";
import { User } from "./user.js";
import * as text from "./text.js";
import { LANGUAGES, t } from "./text.js";

// The tab's own memory: gone with the tab, sent with nothing.
const KEPT = "quotalog.session";

function kept() {
  try {
    return JSON.parse(sessionStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function keep(session) {
  try {
    if (session) sessionStorage.setItem(KEPT, JSON.stringify(session));
    else sessionStorage.removeItem(KEPT);
  } catch {
    // Then it is forgotten at the next load.
  }
}

/** The pages of each role, in their order; the first is where it begins. */
const PAGES = {
  admin: ["near", "user", "defaults", "tokens", "new"],
  viewer: ["near", "user", "defaults"],
  service: ["user", "defaults"],
  user: ["user"],
};
const COMPONENTS = { near: Near, user: User, quota: Quota, defaults: Defaults, tokens: Tokens, new: NewPolicy };

/** The page that the address names, and its ids. */
function place() {
  const [page, ...ids] = location.hash.replace(/^#\/?/, "").split("/");
  try {
    return { page, ids: ids.map(decodeURIComponent).filter(Boolean) };
  } catch {
    return { page: "", ids: [] };
  }
}

function usePlace() {
  const [at, setAt] = useState(place);
  useEffect(() => {
    const onChange = () => setAt(place());
    addEventListener("hashchange", onChange);
    return () => removeEventListener("hashchange", onChange);
  }, []);
  return at;
}

function App() {
  const [, redraw] = useState(0);
  useEffect(() => text.onLanguage(() => redraw((count) => count + 1)), []);
  // `null`: nobody; without a role: a token that is still to be asked about.
  const [session, setSession] = useState(kept);
  const [ended, setEnded] = useState(false);
  const [failure, setFailure] = useState(null);

  const signIn = (found) => {
    keep({ token: found.token });
    setEnded(false);
    setSession({ ...found, isNew: true });
  };
  const signOut = useCallback((wasEnded) => {
    keep(null);
    setEnded(wasEnded);
    setSession(null);
  }, []);

  const check = async () => {
    setFailure(null);
    try {
      const { token } = session;
      setSession({ token, ...(await whoIs(token)) });
    } catch (failed) {
      if (failed.status === 401) signOut(true);
      else setFailure(failed);
    }
  };
  useEffect(() => {
    if (session && !session.role) check();
  }, []);

  if (session && !session.role) {
    return html`<${Frame}>
      ${failure
        ? html`<${Notice} tone="error">
            <p>${text.failure(failure)}</p>
            <p class="buttons">
              <button type="button" onClick=${check}>${t("retry")}</button>
              <button type="button" onClick=${() => signOut(false)}>${t("signOut")}</button>
            </p>
          <//>`
        : html`<${Loading} />`}
    <//>`;
  }
  if (!session) return html`<${Frame}><${SignIn} ended=${ended} onSignIn=${signIn} /><//>`;
  return html`<${SignedIn} session=${session} onSignOut=${signOut} />`;
}

function SignedIn({ session, onSignOut }) {
  const [said, setSaid] = useState(null);
  const { page, ids } = usePlace();
  const call = useMemo(() => client(session.token, () => onSignOut(true)), [session.token]);
  const value = useMemo(
    () => ({ call, role: session.role, userId: session.userId, mayChange: session.role === "admin" }),
    [call, session.role, session.userId],
  );

  const pages = PAGES[session.role];
  const known = pages.includes(page) || (page === "quota" && ids.length === 2);
  const shown = known ? page : pages[0];
  // Whoever has one user's token is on that user's pages, whatever the address says.
  const shownIds = session.role === "user" ? [session.userId, ...ids.slice(1)] : known ? ids : [];
  const address = [shown, ...shownIds].join("/");
  // Another filter is no other page.
  const component = shown === "near" ? shown : address;

  // A reader of screens hears that the page is another one; what was said belonged to the page before.
  const before = useRef(session.isNew ? null : component);
  const main = useRef();
  useLayoutEffect(() => {
    if (before.current === component) return;
    before.current = component;
    main.current.querySelector("h1")?.focus({ preventScroll: true });
    scrollTo(0, 0);
  }, [component]);

  return html`<${Session.Provider} value=${value}>
    <${Frame} mainRef=${main} session=${session} pages=${pages} shown=${shown} onSignOut=${() => onSignOut(false)}>
      <div role="status" class="said">
        ${said && said.address === address && html`<div class=${`notice ${said.tone ?? "success"}`}>
          <div>${said.words}</div>
          <button type="button" class="quiet" aria-label=${t("close")} onClick=${() => setSaid(null)}>×</button>
        </div>`}
      </div>
      <${COMPONENTS[shown]} key=${component} ids=${shownIds} say=${(words, tone, at) => setSaid({ words, tone, address: at ?? address })} />
    <//>
  <//>`;
}

/** What stands around every page. */
function Frame({ session, pages, shown, onSignOut, mainRef, children }) {
  // On a narrow page the pages' names are longer than the page is wide.
  const nav = useRef();
  useEffect(() => nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [shown]);
  const content = (event) => {
    event.preventDefault();
    document.querySelector("main").focus();
  };
  return html`
    <a class="skip" href="#main" onClick=${content}>${t("skip")}</a>
    <header>
      <div class="top">
        <a class="brand" href=${session ? href(pages[0]) : "#/"}>
          <img src="dashboard/icon.svg" alt="" width="24" height="24" />quotalog
        </a>
        <div class="settings">
          <select aria-label=${t("language")} value=${text.currentLanguage()}
            onChange=${(event) => text.setLanguage(event.target.value)}>
            ${Object.entries(LANGUAGES).map(([tag, name]) => html`<option key=${tag} value=${tag} lang=${tag}
              selected=${tag === text.currentLanguage()}>${name}</option>`)}
          </select>
          <${Theme} />
          ${session && html`<span class="role" title=${t(`role.${session.role}.hint`)}>${t(`role.${session.role}`)}</span>`}
          ${session && html`<button type="button" class="quiet" onClick=${onSignOut}>${t("signOut")}</button>`}
        </div>
      </div>
      ${session && pages.length > 1 && html`<nav ref=${nav} aria-label=${t("nav.label")}><ul>
        ${pages.map((page) => html`<li key=${page}><a href=${href(page)}
          aria-current=${shown === page || (page === "user" && shown === "quota") ? "page" : undefined}>${t(`nav.${page}`)}</a></li>`)}
      </ul></nav>`}
    </header>
    <main ref=${mainRef} id="main" tabindex="-1">${children}</main>
  `;
}

function Theme() {
  const [theme, setTheme] = useState(window.quotalogTheme.get());
  const choose = (event) => {
    window.quotalogTheme.set(event.target.value);
    setTheme(event.target.value);
  };
  return html`<select aria-label=${t("theme")} value=${theme} onChange=${choose}>
    ${["auto", "light", "dark"].map((name) => html`<option key=${name} value=${name} selected=${name === theme}>${t(`theme.${name}`)}</option>`)}
  </select>`;
}

text.startLanguage();
render(html`<${App} />`, document.getElementById("app"));
