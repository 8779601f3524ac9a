// Numbers that stay fresh. At most one request is under way whose answer counts: whatever is newer ends it, so no late
// answer overwrites a newer one. A refresh that fails leaves the numbers, and says since when they are old.

import { useEffect, useRef, useState } from "./vendor/preact-hooks.js";
import { now } from "./api.js";

// After these, asking again would be answered the same.
const FINAL = new Set(["unauthorized", "forbidden", "invalid", "noId"]);

/**
 * `load(signal)` again every `everyS` seconds, or once if that is 0; anew when `key` changes. What takes longer than that
 * rests for as long as it took.
 * Returns `{data, at, failure, busy, paused, refresh, put, setPaused}`.
 */
export function useLive(load, key, everyS) {
  const [state, setState] = useState({ key });
  const [paused, setPaused] = useState(false);
  const latest = useRef();
  latest.current = { load, paused };
  const controls = useRef({});

  useEffect(() => {
    let request, timer;
    let over = false;
    let tookMs = 0;
    const plan = (failure) => {
      clearTimeout(timer);
      if (over || !everyS || FINAL.has(failure?.kind)) return;
      timer = setTimeout(tick, Math.max(everyS * 1_000, (failure?.retryAfterS ?? 0) * 1_000, tookMs));
    };
    // Nobody reads a hidden page. When it is shown again, it is brought up to date at once.
    const tick = () => (document.hidden || latest.current.paused ? plan() : refresh());
    const onShown = () => !document.hidden && everyS && !latest.current.paused && refresh();

    async function refresh() {
      request?.abort();
      clearTimeout(timer);
      const { signal } = (request = new AbortController());
      const beganMs = performance.now();
      setState((old) => ({ ...(old.key === key ? old : { key }), busy: true }));
      try {
        const data = await latest.current.load(signal).finally(() => (tookMs = performance.now() - beganMs));
        if (signal.aborted) return;
        setState({ key, data, at: now() });
        plan();
      } catch (failure) {
        if (signal.aborted) return;
        if (!failure.kind) throw failure;
        setState((old) => ({ ...old, busy: false, failure }));
        plan(failure);
      }
    }
    function put(data) {
      request?.abort();
      setState({ key, data, at: now() });
      plan();
    }

    controls.current = { refresh, put };
    document.addEventListener("visibilitychange", onShown);
    refresh();
    return () => {
      over = true;
      request?.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onShown);
    };
  }, [key, everyS]);

  return {
    // What was loaded for another key is not shown under this one.
    ...(state.key === key ? state : {}),
    paused,
    setPaused,
    refresh: () => controls.current.refresh?.(),
    put: (data) => controls.current.put?.(data),
  };
}

/** The server's time, every second. */
export function useNow() {
  const [, tick] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => tick((count) => count + 1), 1_000);
    return () => clearInterval(timer);
  }, []);
  return now();
}

/** A walk through pages: `cursor` of the present one, and the ways on and back. */
export function usePages(key) {
  const [walk, setWalk] = useState({ key, cursors: [] });
  const cursors = walk.key === key ? walk.cursors : [];
  return {
    cursor: cursors.at(-1) ?? null,
    next: (cursor) => setWalk({ key, cursors: [...cursors, cursor] }),
    back: cursors.length ? () => setWalk({ key, cursors: cursors.slice(0, -1) }) : null,
  };
}
