// The chart of past windows, with the same numbers as a table for whoever does not see it.

import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { now, path, query } from "./api.js";
import { Empty, Loaded, Notice, Table, html, useSession } from "./kit.js";
import { useLive } from "./live.js";
import * as text from "./text.js";
import { t } from "./text.js";

const HEIGHT_PX = 220;
const FRESH_S = 60;
/** How long a window is, and how many of them are shown. The rows of so many days are one page of the API's largest. */
const KINDS = { hourly: { ms: 3_600_000, count: 48 }, daily: { ms: 86_400_000, count: 30 } };
const ROWS_MAX = 1_000;

export function Past({ userId, resource, quota, changes }) {
  const { call } = useSession();
  // Where no policy tells how long a window is, days hold whatever was counted.
  const kind = quota?.window ?? "daily";
  const load = async (signal) => {
    const { ms, count } = KINDS[kind];
    const last = Math.floor(now() / ms) * ms;
    const first = last - (count - 1) * ms;
    const from = new Date(first).toISOString().replace(".000Z", "Z");
    const to = `quotas/${path(userId, resource)}/usage${query({ from, limit: ROWS_MAX })}`;
    const { windows } = (await call("GET", to, { signal })).data;
    const starts = Array.from({ length: count }, (_, place) => first + place * ms);
    const usage = starts.map(() => 0);
    for (const row of windows) {
      // A row counts in the window that its start falls into.
      const place = Math.floor((Date.parse(row.window_start) - first) / ms);
      if (place in usage) usage[place] += row.usage;
    }
    return { kind, starts, usage };
  };
  const live = useLive(load, `${userId}/${resource}/${kind}/${changes}`, FRESH_S);
  // While a newer one is on its way, the older chart stays.
  const shown = useRef();
  shown.current = live.data ?? shown.current;
  const kept = shown.current?.kind === kind ? { ...live, data: shown.current } : live;
  return html`<section aria-labelledby="past">
    <h2 id="past">${t("past.title")}</h2>
    ${live.failure && shown.current && html`<${Notice} tone="warning">${text.failure(live.failure)}<//>`}
    <${Loaded} live=${kept}>${(data) => data.usage.every((units) => units === 0)
      ? html`<${Empty}>${t(`past.none.${kind}`, { count: data.starts.length })}<//>`
      : html`<${Chart} ...${data} limit=${quota?.limit_count} />`}<//>
  </section>`;
}

const label = (kind, ms) => (kind === "daily" ? text.day(ms) : `${text.shortDay(ms)}, ${text.hour(ms)} UTC`);

function Chart({ kind, starts, usage, limit }) {
  const place = useRef();
  const [pointed, setPointed] = useState(null);
  const total = usage.reduce((sum, units) => sum + units, 0);
  const summary = t(`past.${kind}`, { count: starts.length, total, most: Math.max(...usage) });
  const language = text.currentLanguage();

  useEffect(() => {
    const box = place.current;
    let plot;
    const draw = () => {
      plot?.destroy();
      plot = new uPlot(options(kind, box, setPointed), columns(starts, usage, limit), box);
    };
    draw();
    // The canvas is painted, so it follows neither width nor theme by itself.
    const widths = new ResizeObserver(() => plot.setSize({ width: box.clientWidth, height: HEIGHT_PX }));
    widths.observe(box);
    const dark = matchMedia("(prefers-color-scheme: dark)");
    dark.addEventListener("change", draw);
    addEventListener("quotalog-theme", draw);
    return () => {
      widths.disconnect();
      dark.removeEventListener("change", draw);
      removeEventListener("quotalog-theme", draw);
      plot.destroy();
    };
  }, [kind, starts, usage, limit, language]);

  const rows = starts.map((start, index) => ({ start, units: usage[index] })).reverse();
  const read = pointed !== null && pointed < starts.length;
  return html`<figure>
    <div ref=${place} class="chart" role="img" aria-label=${summary}></div>
    <figcaption>
      ${read ? t("past.at", { window: label(kind, starts[pointed]), count: usage[pointed] }) : summary}
      ${limit !== undefined && !read && html`<span class="legend"><span class="dash" aria-hidden="true"></span>${t("past.limit", { count: limit })}</span>`}
    </figcaption>
    <details>
      <summary>${t("past.table")}</summary>
      <div class="scroll" tabindex="0" role="region" aria-label=${t("past.title")}>
        <${Table} caption=${t("past.title")} rows=${rows} rowKey=${({ start }) => start} columns=${[
          { title: t("field.window"), cell: ({ start }) => label(kind, start) },
          { title: t("col.used"), kind: "numeric", cell: ({ units }) => text.number(units) },
        ]} />
      </div>
    </details>
  </figure>`;
}

const columns = (starts, usage, limit) => [
  starts.map((ms) => ms / 1_000),
  usage,
  starts.map(() => limit ?? null),
];

function options(kind, place, onPointed) {
  const color = (name) => {
    place.style.color = `var(--${name})`;
    const found = getComputedStyle(place).color;
    place.style.color = "";
    return found;
  };
  const font = `12px ${getComputedStyle(place).fontFamily}`;
  const axis = { stroke: color("quiet"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font };
  const daily = kind === "daily";
  return {
    width: place.clientWidth,
    height: HEIGHT_PX,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    tzDate: (s) => uPlot.tzDate(new Date(s * 1_000), "Etc/UTC"),
    scales: {
      // A bar stands around its window's start, also the first and the last one.
      x: { range: (_, first, last) => [first - KINDS[kind].ms / 2_000, last + KINDS[kind].ms / 2_000] },
      y: { range: (_, __, most) => [0, Math.max(1, most * 1.1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 28,
        space: daily ? 60 : 70,
        incrs: [1, 2, 3, 6, 12, 24, 48, 120, 240].map((hours) => hours * 3_600).filter((s) => !daily || s >= 86_400),
        values: (_, splits) => splits.map((s) => (s % 86_400 === 0 ? text.shortDay(s * 1_000) : text.hour(s * 1_000))),
      },
      {
        ...axis,
        size: (plot, values) => 16 + 7 * Math.max(1, ...(values ?? []).map((value) => value.length)),
        incrs: [1, 2, 5].flatMap((n) => [0, 1, 2, 3, 4, 5, 6].map((power) => n * 10 ** power)).sort((a, b) => a - b),
        values: (_, splits) => splits.map(text.number),
      },
    ],
    series: [
      {},
      { fill: color("accent"), stroke: color("accent"), width: 0, points: { show: false }, paths: uPlot.paths.bars({ size: [0.75, 40] }) },
      { stroke: color("bad"), width: 1.5, dash: [6, 4], points: { show: false } },
    ],
    hooks: { setCursor: [(plot) => onPointed(plot.cursor.idx ?? null)] },
  };
}
