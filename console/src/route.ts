// What is on screen, as the part of the address after the #. It never reaches the server, and a link has all of it.
import { computed, signal } from "@preact/signals";

export interface Route { view: string; path: string[]; query: URLSearchParams }

const hash = signal(location.hash);
addEventListener("hashchange", () => { hash.value = location.hash; });

export const route = computed<Route>(() => parse(hash.value));

export function parse(text: string): Route {
  const whole = text.replace(/^#?\/?/, ""), at = whole.indexOf("?");
  const path = at < 0 ? whole : whole.slice(0, at), query = at < 0 ? "" : whole.slice(at + 1); // in which there may be more of them
  const [view, ...rest] = path.split("/").map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { view: view || "kinds", path: rest, query: new URLSearchParams(query) };
}

/** The link to a view. Parts of the path and values that are empty are left out. */
export function link(view: string, path: string[] = [], query: Record<string, string | string[]> = {}): string {
  const q = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const v of Array.isArray(value) ? value : [value]) if (v !== "") q.append(name, v);
  }
  const text = q.toString();
  return `#/${[view, ...path].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** Goes to a link, which is a step in the browser's history. */
export function go(to: string): void { location.hash = to; }

/** Changes the address without a step in the history, as for each letter that is typed. */
export function replace(to: string): void {
  if (to === location.hash) return;
  history.replaceState(null, "", to);
  hash.value = to;
}

/** The present link with other values in its query. */
export function withQuery(changes: Record<string, string>): string {
  const r = route.peek();
  const q = new URLSearchParams(r.query);
  for (const [name, value] of Object.entries(changes)) {
    if (value === "") q.delete(name);
    else q.set(name, value);
  }
  const text = q.toString();
  return `#/${[r.view, ...r.path].map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function objectLink(k: { group: string; version: string; resource: string }, namespace: string, name: string, tab = ""): string {
  return link("object", [k.group || "core", k.version, k.resource, namespace || "-", name], { tab });
}
