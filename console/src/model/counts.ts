// How many objects each kind has, and what came and went last. Counts are asked for once; then one stream of all kinds moves them. Where
// there's no such stream, or not for this user, they're asked for again and again.
import { effect, signal } from "@preact/signals";
import { json, Refusal } from "../api/client";
import { kinds, linkOf, nameOf, pathOf, type Kind } from "../api/discovery";
import { watch } from "../api/watch";

/** How often counts are asked for without a stream, in ms. */
const interval = 3000;

/** How often counts that a stream moves are drawn, in ms. */
const drawInterval = 200;

/** How many pieces of news are kept, and how many kinds a stream may have. */
const mostNews = 30, mostKinds = 256;

/** How many kinds may be refused to a stream before there's none. */
const mostOthers = 20;

/** How many counts are asked for at once: the page has other things to do, too. */
const atOnce = 4;

export interface Count { n: number; moved: number } // moved is when it changed last, by performance.now(); 0: not yet

export interface News { id: number; what: "new" | "changed" | "gone"; kind: Kind; namespace: string; name: string; at: number } // at is a Date's number

/** Counts by the kinds' links; -1 where the user may not list. */
export const counts = signal<ReadonlyMap<string, Count>>(new Map());

/** What came, changed and went since the page is open, the newest first. */
export const news = signal<News[]>([]);

let ids = 0;

/** Keeps the counts, until the function is called that it returns. */
export function count(): () => void {
  let stop = () => {};
  const off = effect(() => { // anew when there are other kinds
    const all = (kinds.value ?? []).filter((k) => k.verbs.includes("list"));
    stop();
    stop = keep(all);
  });
  return () => { off(); stop(); };
}

function keep(all: Kind[]): () => void {
  let stopped = false, timer = 0, close = () => {};
  const round = async (polls: boolean) => {
    const versions = new Map<string, number>();
    if (document.visibilityState === "visible" || !polls) await look(all, versions);
    if (stopped) return;
    if (polls) timer = window.setTimeout(() => void round(true), interval);
    else close = follow(all, versions, (refused) => { close(); void round(refused); });
  };
  const unseen = onceSeen(() => void round(false)); // the kinds are on screen first
  return () => { stopped = true; unseen(); clearTimeout(timer); close(); };
}

/** How long it may take until the page is on screen, in ms: a tab in the background draws nothing. */
const drawingTime = 500;

/** Calls a function once the page has been on screen, unless the function is called before that it returns. */
function onceSeen(then: () => void): () => void {
  const seen = new PerformanceObserver((list) => { if (list.getEntriesByName("first-contentful-paint").length > 0) go(); });
  const timer = setTimeout(go, drawingTime);
  const stop = () => { seen.disconnect(); clearTimeout(timer); };
  function go() { stop(); then(); }
  seen.observe({ type: "paint", buffered: true });
  return stop;
}

/** Counts all kinds once, and notes at which version each count was right. */
async function look(all: Kind[], versions: Map<string, number>): Promise<void> {
  const found = new Map<string, Count>();
  const left = [...all];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (let k = left.shift(); k; k = left.shift()) {
      const link = linkOf(k), was = counts.peek().get(link);
      const answer = await counted(k);
      if (answer) versions.set(link, answer.version);
      const n = answer?.n ?? was?.n;
      if (n !== undefined) found.set(link, was?.n === n ? was : { n, moved: was ? performance.now() : 0 });
    }
  }));
  counts.value = new Map([...counts.peek(), ...found]);
}

async function ask(k: Kind, namespace = ""): Promise<{ n: number; version: number }> {
  const list = await json<{ metadata: { remainingItemCount?: number; resourceVersion?: string }; items: unknown[] | null }>(`${pathOf(k, namespace)}?limit=1&pretty=false`,
    { accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json" });
  return { n: (list.items?.length ?? 0) + (list.metadata.remainingItemCount ?? 0), version: Number(list.metadata.resourceVersion ?? 0) };
}

/** How many objects a kind has, in all namespaces or in one; undefined if it isn't known. */
export async function countOf(k: Kind, namespace = ""): Promise<number | undefined> {
  try {
    return (await ask(k, namespace)).n;
  } catch {
    return undefined;
  }
}

/** What is in a namespace, and how many kinds couldn't be counted. */
export async function countIn(namespace: string): Promise<{ counted: [Kind, number][]; unread: number }> {
  const all = (kinds.peek() ?? []).filter((k) => k.namespaced && k.verbs.includes("list"));
  const found = await Promise.all(all.map(async (k): Promise<[Kind, number | undefined]> => [k, await countOf(k, namespace)]));
  return { counted: found.filter((f): f is [Kind, number] => (f[1] ?? 0) > 0), unread: found.filter(([, n]) => n === undefined).length };
}

async function counted(k: Kind): Promise<{ n: number; version: number } | undefined> {
  try {
    return await ask(k);
  } catch (error) {
    return error instanceof Refusal && error.code === 403 ? { n: -1, version: 0 } : undefined;
  }
}

/** Moves counts by one stream of all kinds that it may have; others that are counted are asked for again and again. again is called when all
 have to be asked for anew. */
function follow(all: Kind[], versions: Map<string, number>, again: (refused: boolean) => void): () => void {
  const others = new Set(all.filter((k) => !k.verbs.includes("watch"))); // and those of which the user may not watch, or that other servers have
  let close = () => {};
  const open = () => {
    const watched = all.filter((k) => !others.has(k) && (versions.get(linkOf(k)) ?? 0) > 0).slice(0, mostKinds);
    if (watched.length === 0) return again(true);
    close = stream(watched, versions, again, (message) => {
      const refused = watched.find((k) => message.startsWith(`${nameOf(k)} is forbidden`) || message.includes(`names "${nameOf(k)}"`));
      close();
      if (!refused || others.size >= mostOthers) return again(true);
      others.add(refused);
      open();
    });
  };
  const timer = setInterval(() => {
    const left = [...others].filter((k) => (counts.peek().get(linkOf(k))?.n ?? -1) >= 0);
    if (left.length > 0 && document.visibilityState === "visible") void look(left, versions);
  }, interval);
  const opening = setTimeout(open);
  return () => { clearTimeout(opening); clearInterval(timer); close(); };
}

/** Moves the counts of kinds by one stream. refused is told why there's none. */
function stream(watched: Kind[], versions: Map<string, number>, again: (refused: boolean) => void, refused: (message: string) => void): () => void {
  const byName = new Map(watched.map((k) => [`${k.group}/${k.kind}`, k]));
  const moved = new Map<string, number>(), told: News[] = [];
  let latest = ""; // the last event's version
  const had = new Set<string>(); // whose events of that version were told: after a cut all of them come again
  let timer = 0;
  const draw = () => {
    timer = 0;
    const next = new Map(counts.peek());
    for (const [link, by] of moved) if (by !== 0) next.set(link, { n: (next.get(link)?.n ?? 0) + by, moved: performance.now() });
    moved.clear();
    counts.value = next;
    news.value = [...told.splice(0).reverse(), ...news.peek()].slice(0, mostNews);
  };
  const stop = watch({
    url: `/apiserver-lite/v1/watch?${watched.map((k) => `resource=${encodeURIComponent(nameOf(k))}`).join("&")}`, accept: "application/json",
    from: String(Math.min(...watched.map((k) => versions.get(linkOf(k))!))),
    query: (version) => version ? `&resourceVersion=${version}` : "",
    begin: () => again(false), // history doesn't reach so far
    synced: () => {},
    health: (h) => { if (h.state === "refused") latest ? again(false) : refused(h.message ?? ""); }, // what was told isn't told again
    event: (e) => {
      const { apiVersion, kind, metadata } = e.object;
      const k = byName.get(`${apiVersion.includes("/") ? apiVersion.split("/")[0] : ""}/${kind}`);
      if (!k || Number(metadata.resourceVersion) <= versions.get(linkOf(k))!) return; // was counted
      if (metadata.resourceVersion !== latest) had.clear();
      latest = metadata.resourceVersion;
      if (had.has(metadata.uid)) return;
      had.add(metadata.uid);
      const by = e.type === "ADDED" ? 1 : e.type === "DELETED" ? -1 : 0;
      moved.set(linkOf(k), (moved.get(linkOf(k)) ?? 0) + by);
      told.push({ id: ids++, what: by > 0 ? "new" : by < 0 ? "gone" : "changed", kind: k, namespace: metadata.namespace ?? "", name: metadata.name, at: Date.now() });
      if (told.length > mostNews) told.shift();
      timer ||= window.setTimeout(draw, drawInterval);
    },
  });
  return () => { stop(); clearTimeout(timer); };
}
