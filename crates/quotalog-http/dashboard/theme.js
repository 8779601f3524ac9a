// Light, dark or as the system has it. It runs before anything is drawn, so that no page flashes.
"use strict";
(() => {
  const NAME = "quotalog.theme";
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
  };
  // A browser may refuse to keep anything; then the choice holds until the page is left.
  let chosen = "auto";
  try {
    chosen = localStorage.getItem(NAME) ?? "auto";
  } catch {}
  apply(chosen);
  window.quotalogTheme = {
    get: () => document.documentElement.dataset.theme ?? "auto",
    set(theme) {
      apply(theme);
      try {
        localStorage.setItem(NAME, theme);
      } catch {}
      window.dispatchEvent(new Event("quotalog-theme"));
    },
  };
})();
