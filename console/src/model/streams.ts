// The streams of what is side by side. Kinds that are asked for in the same namespace and with the same selectors share one, if the
// user may watch all of them; others have one each.
import { announce } from "../ui/announce";
import { json } from "../api/client";
import { pathOf, type Kind } from "../api/discovery";
import { poll, watch, type WatchEvent, type Watching } from "../api/watch";
import type { Rows } from "./rows";

/** What is asked for: a kind's objects, as rows. */
export interface Ask { kind: Kind; namespace: string; labels: string; fields: string; rows: Rows }

const table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/** What two asks have the same if one stream can have both. */
const question = (a: Ask): string => JSON.stringify([a.kind.namespaced ? a.namespace : "", a.labels, a.fields, watchable(a.kind) ? "" : pathOf(a.kind)]);

const watchable = (k: Kind): boolean => k.verbs.includes("watch");

/** Which ask it is, whatever has its rows. */
const identity = (a: Ask): string => `${pathOf(a.kind)} ${question(a)}`;

export class Streams {
  private open = new Map<string, () => void>(); // what closes them
  private asked = new Map<Rows, string>(); // what rows have been asked for last

  /** Has streams of what is asked for, and of nothing else. */
  set(asks: Ask[]): void {
    for (const a of asks) {
      if (this.asked.get(a.rows) !== identity(a)) a.rows.clear();
    }
    this.asked = new Map(asks.map((a) => [a.rows, identity(a)]));
    const wanted = new Map([...Map.groupBy(asks, question)].map(([q, members]) => [`${q} ${members.map((a) => `${pathOf(a.kind)} ${idOf(a.rows)}`)}`, members]));
    for (const [key, close] of this.open) {
      if (wanted.has(key)) continue;
      close();
      this.open.delete(key);
    }
    for (const [key, members] of wanted) if (!this.open.has(key)) this.open.set(key, follow(members));
  }

  close(): void { this.set([]); }
}

const ids = new WeakMap<Rows, number>();
let lastId = 0;

function idOf(rows: Rows): number {
  if (!ids.has(rows)) ids.set(rows, ++lastId);
  return ids.get(rows)!;
}

/** Follows what has the same question, on one stream if there are several kinds of it. */
function follow(members: Ask[]): () => void {
  if (!watchable(members[0].kind)) return list(members);
  const byPath = Map.groupBy(members, (a) => pathOf(a.kind));
  if (byPath.size === 1) return watch({ url: pathOf(members[0].kind, members[0].namespace) + selectors(members[0], "?"), accept: table, ...into(members, () => members) });
  let close = () => {};
  const names = [...byPath.values()].map(([a]) => `resource=${encodeURIComponent(`${a.kind.resource}.${a.kind.version}.${a.kind.group}`)}`);
  const of = into(members, (e) => byPath.get(e.object.metadata?.selfLink) ?? []);
  const stop = watch({
    url: `/apiserver-lite/v1/watch?${names.join("&")}${namespaceOf(members)}${selectors(members[0], "&")}`, accept: table,
    query: (version) => version ? `&resourceVersion=${version}` : "&initialEvents=true",
    ...of,
    health: (h) => {
      if (h.state !== "refused") return of.health(h);
      stop(); // one of them isn't the user's to watch, or doesn't have the field: each on its own says so
      const closes = [...byPath.values()].map(follow);
      close = () => { for (const c of closes) c(); };
    },
  });
  return () => { stop(); close(); };
}

/** Lists a kind that can't be watched again and again. */
function list(members: Ask[]): () => void {
  const url = pathOf(members[0].kind, members[0].namespace) + selectors(members[0], "?"), of = into(members, () => members);
  return poll(async (signal) => {
    const object = await json(url, { accept: table, signal });
    of.begin();
    of.event({ type: "ADDED", object });
    of.synced();
  }, of.health);
}

/** What a stream tells, for the rows of those that an event is for. */
function into(members: Ask[], whose: (e: WatchEvent) => Ask[]): Pick<Watching, "begin" | "synced" | "event" | "health"> {
  const each = (f: (rows: Rows) => void) => { for (const a of members) f(a.rows); };
  return {
    begin: () => each((rows) => rows.begin()),
    synced: () => { each((rows) => rows.endState()); announce(members.map((a) => `${a.rows.size} ${a.kind.resource}`).join(", ")); },
    event: (e) => { for (const a of whose(e)) a.rows.apply(e); },
    health: (h) => each((rows) => rows.tell(h)),
  };
}

const namespaceOf = ([{ kind, namespace }]: Ask[]): string => kind.namespaced && namespace ? `&namespace=${encodeURIComponent(namespace)}` : "";

function selectors(a: Ask, before: string): string {
  const q = new URLSearchParams();
  if (a.labels) q.set("labelSelector", a.labels);
  if (a.fields) {
    q.set("fieldSelector", a.fields);
    q.set("lite", "true"); // any field may be in it
  }
  const text = q.toString();
  return text && before + text;
}
