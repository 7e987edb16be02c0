// One watch: the state first, then what changes, for as long as somebody listens. A cut is resumed from where it was; after 410
// the state comes again.
import { call, messageOf, Refusal, strange, token } from "./client";
import { effect } from "@preact/signals";

export interface WatchEvent { type: string; object: any }

export type Health = { state: "connecting" | "live" | "polled" | "waiting" | "refused"; message?: string };

export interface Watching {
  /** The path and query but for what a watch adds. */
  url: string;
  accept: string;
  /** What is added to the url instead, where it isn't one kind's, to go on after a version, or from the state if that's "". */
  query?(version: string): string;
  /** The version after which it begins, if not with the state. */
  from?: string;
  /** The state begins: what isn't in it, is gone when it ends. */
  begin(): void;
  /** The state has been told. */
  synced(): void;
  event(e: WatchEvent): void;
  health(h: Health): void;
}

/** How long a slice of work on events may take before the page gets its turn, in ms: a frame has 16. */
const slice = 6;

/** The first and the longest wait before a watch is opened again, in ms. */
const soon = 250, late = 5000;

/** Opens a watch and keeps it open, until the function is called that it returns. */
export function watch(w: Watching): () => void {
  const stop = new AbortController();
  void keep(w, stop.signal);
  return () => stop.abort();
}

async function keep(w: Watching, signal: AbortSignal): Promise<void> {
  let version = w.from ?? "", wait = soon;
  while (!signal.aborted) {
    w.health({ state: "connecting" });
    try {
      const answer = await call(w.url + (w.query?.(version) ?? query(w.url, version)), { accept: w.accept, signal });
      if (!version) w.begin();
      w.health({ state: "live" });
      wait = soon;
      version = await read(answer, version, w, signal);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refusal && error.code === 410) {
        version = "";
        continue;
      }
      if (error instanceof Refusal && [400, 401, 403, 404, 405, 406].includes(error.code)) {
        w.health({ state: "refused", message: error.message });
        if (error.code === 401) {
          await anotherToken(signal);
          continue;
        }
        if (error.code !== 404) return;
        wait = late; // the kind may come back
      } else {
        w.health({ state: "waiting", message: messageOf(error) });
      }
      await pause(wait, signal);
      wait = Math.min(late, wait * 2);
    }
  }
}

/** How often what can't be watched is asked for, in ms. */
const pollInterval = 5000;

/** Asks again and again for what can't be watched, until the function is called that it returns. */
export function poll(once: (signal: AbortSignal) => Promise<void>, health: (h: Health) => void): () => void {
  const stop = new AbortController(), { signal } = stop;
  void (async () => {
    health({ state: "connecting" });
    while (!signal.aborted) {
      try {
        await once(signal);
        health({ state: "polled" });
      } catch (error) {
        if (signal.aborted) return;
        const refused = error instanceof Refusal && error.code < 500 && error.code !== 429;
        health({ state: refused ? "refused" : "waiting", message: messageOf(error) });
        if (refused && error.code === 401) await anotherToken(signal);
        else if (refused && error.code !== 404) return; // it stays so
      }
      await pause(pollInterval, signal);
    }
  })();
  return () => stop.abort();
}

function query(url: string, version: string): string {
  const q = new URLSearchParams({ watch: "true", allowWatchBookmarks: "true" });
  if (version) q.set("resourceVersion", version);
  else {
    q.set("sendInitialEvents", "true");
    q.set("resourceVersionMatch", "NotOlderThan");
  }
  return (url.includes("?") ? "&" : "?") + q.toString();
}

/** Reads a stream to its end, and returns where the next one goes on; "" if that needs the state, as after a part of one. */
async function read(answer: Response, version: string, w: Watching, signal: AbortSignal): Promise<string> {
  const reader = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", begun = performance.now(), whole = version !== "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done || signal.aborted) return version;
      let from = 0;
      for (let at = value.indexOf("\n"); at >= 0; at = value.indexOf("\n", from)) {
        const line = rest + value.slice(from, at);
        rest = "";
        from = at + 1;
        if (line === "") continue;
        const e = JSON.parse(line) as WatchEvent;
        if (e.type === "ERROR") {
          if (e.object?.code === 410) return "";
          throw new Refusal(e.object);
        }
        whole ||= e.type === "BOOKMARK" && endsState(e);
        if (whole) version = versionOf(e) || version;
        if (e.type === "BOOKMARK") {
          if (endsState(e)) w.synced();
        } else {
          w.event(e);
        }
        if (performance.now() - begun > slice) {
          await turn();
          if (signal.aborted) return version;
          begun = performance.now();
        }
      }
      rest += value.slice(from);
    }
  } finally {
    void reader.cancel().catch(() => {});
  }
}

const metadataOf = (e: WatchEvent): any => e.object?.rows?.[0]?.object?.metadata ?? e.object?.metadata;
const versionOf = (e: WatchEvent): string => e.object?.metadata?.resourceVersion ?? metadataOf(e)?.resourceVersion ?? "";
const endsState = (e: WatchEvent): boolean => metadataOf(e)?.annotations?.["k8s.io/initial-events-end"] === "true";

/** Lets the page draw and take input. */
function turn(): Promise<void> {
  return new Promise((go) => {
    const c = new MessageChannel();
    c.port1.onmessage = () => { c.port1.close(); go(); };
    c.port2.postMessage(0);
  });
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((go) => {
    const t = setTimeout(go, ms);
    signal.addEventListener("abort", () => { clearTimeout(t); go(); }, { once: true });
  });
}

/** Waits until the user has given another token, or is let in without. */
function anotherToken(signal: AbortSignal): Promise<void> {
  return new Promise((go) => {
    const was = token.peek();
    const off = effect(() => { if (token.value !== was || !strange.value) queueMicrotask(done); });
    const done = () => { off(); go(); };
    signal.addEventListener("abort", done, { once: true });
  });
}
