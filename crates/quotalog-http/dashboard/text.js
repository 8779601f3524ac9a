// Words, numbers and times in the reader's language.

import { messages as en } from "./text/en.js";
import { messages as ja } from "./text/ja.js";
import { messages as ptBR } from "./text/pt-BR.js";

export const LANGUAGES = { en: "English", ja: "日本語", "pt-BR": "Português (Brasil)" };
const MESSAGES = { en, ja, "pt-BR": ptBR };
const NAME = "quotalog.language";

let language = "en";
const listeners = new Set();

export const currentLanguage = () => language;

/** Calls `listener` after each change of the language; returns how to stop that. */
export function onLanguage(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function setLanguage(chosen, { keep = true } = {}) {
  language = chosen;
  document.documentElement.lang = chosen;
  if (keep) {
    try {
      localStorage.setItem(NAME, chosen);
    } catch {
      // Then it holds until the page is left.
    }
  }
  listeners.forEach((listener) => listener());
}

/** The language chosen before, else the first one of the browser's that there is. */
export function startLanguage() {
  let kept = null;
  try {
    kept = localStorage.getItem(NAME);
  } catch {
    // Then the browser's.
  }
  const known = (tag) => Object.keys(LANGUAGES).find((name) => name.split("-")[0] === tag.toLowerCase().split("-")[0]);
  const first = navigator.languages.map(known).find(Boolean);
  setLanguage(kept in LANGUAGES ? kept : (first ?? "en"), { keep: false });
}

/** A message. Where all values are texts or numbers it is a text, else a list with the values as they are. */
export function t(name, values = {}) {
  const message = MESSAGES[language][name];
  const parts = message.split(/\{(\w+)\}/).map((part, place) => {
    if (place % 2 === 0) return part;
    const value = values[part];
    return typeof value === "number" ? number(value) : value;
  });
  return parts.every((part) => typeof part === "string") ? parts.join("") : parts;
}

/** Whether there is a message of the name. */
export const has = (name) => name in MESSAGES[language];

export const number = (value) => new Intl.NumberFormat(language).format(value);

/** Full only when it is: 99.9 % is not shown as 100 %. */
export const percent = (part, whole) =>
  new Intl.NumberFormat(language, { style: "percent" }).format(Math.floor((part * 100) / whole) / 100);

const utc = (options) => new Intl.DateTimeFormat(language, { timeZone: "UTC", hourCycle: "h23", ...options });
const CLOCK = { hour: "2-digit", minute: "2-digit" };
const DAY = { year: "numeric", month: "short", day: "numeric" };

export const clock = (ms) => `${utc({ ...CLOCK, second: "2-digit" }).format(ms)} UTC`;
export const instant = (ms) => `${utc({ ...DAY, ...CLOCK }).format(ms)} UTC`;
export const day = (ms) => utc(DAY).format(ms);
export const shortDay = (ms) => utc({ month: "short", day: "numeric" }).format(ms);
export const hour = (ms) => utc(CLOCK).format(ms);

/** The window of a quota: its day, and the hours of it if it is an hour. */
export function span({ window, window_start, reset_at }) {
  const start = Date.parse(window_start);
  if (window === "daily") return t("span.day", { day: day(start) });
  return t("span.hour", { day: shortDay(start), from: hour(start), to: hour(Date.parse(reset_at)) });
}

/** How long, to the second, in its two largest units. */
export function duration(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  const units = [
    ["day", Math.floor(seconds / 86_400)],
    ["hour", Math.floor(seconds / 3_600) % 24],
    ["minute", Math.floor(seconds / 60) % 60],
    ["second", seconds % 60],
  ];
  const first = Math.min(units.findIndex(([, count]) => count > 0) >>> 0, 3);
  const format = ([unit, count]) =>
    new Intl.NumberFormat(language, { style: "unit", unit, unitDisplay: language === "en" ? "narrow" : "short" }).format(count);
  return units.slice(first, first + 2).map(format).join(" ");
}

export const windowName = (name) => t(`window.${name}`);

/** A limit and its window, as one says it. */
export const limit = ({ window: name, limit_count }) => t(`limit.${name}`, { count: limit_count });

/** What went wrong, in words. */
export function failure({ kind, status, retryAfterS, requestId }) {
  const text = t(`error.${kind}`, { status: String(status), id: requestId });
  return retryAfterS ? `${text} ${t("error.wait", { time: duration(retryAfterS * 1_000) })}` : text;
}

/** What is wrong with a value, in words of the language where they are known. */
export const fault = ({ field, code, message }) =>
  has(`fault.${field}.${code}`) ? t(`fault.${field}.${code}`) : has(`fault.${code}`) ? t(`fault.${code}`) : message;
