// What the view of objects has side by side, as it's in the address.
import { link, parse, type Route } from "../route";

export interface Pane {
  kind: string; // as in links
  namespace?: string;
  labels?: string; // selector
  fields?: string; // selector
  words?: string;
  sort?: string; // a column, with a - before it from the largest down
  wide?: string; // "1" for all columns, also those that kubectl shows with -o wide
  at?: string; // the key of the row that was opened last
}

/** How many panes fit on a screen. */
export const mostPanes = 4;

const names: [keyof Pane, string][] = [["namespace", "ns"], ["labels", "l"], ["fields", "f"], ["words", "q"], ["sort", "sort"], ["wide", "wide"], ["at", "at"]];

export function panesOf(r: Route): Pane[] {
  return r.query.getAll("pane").slice(0, mostPanes).map((text) => {
    const { view, path, query } = parse(text);
    const pane: Pane = { kind: [view, ...path].join("/") };
    for (const [field, name] of names) pane[field] = query.get(name) ?? "";
    return pane;
  });
}

/** The namespace that is on screen, "default" if it's none or all of them. */
export function namespaceOn(r: Route): string {
  const named = r.view === "objects" ? panesOf(r)[0]?.namespace : r.view === "object" ? r.path[3] : r.query.get("ns");
  return named && named !== "-" ? named : "default";
}

/** The link to the form for a new object. */
export function formLink(kind: string, namespace = ""): string {
  return link("definitions", kind.split("/"), { tab: "form", ns: namespace });
}

export function paneLink(panes: Pane[]): string {
  return link("objects", [], {
    pane: panes.map((p) => {
      const q = new URLSearchParams();
      for (const [field, name] of names) if (p[field]) q.set(name, p[field]!);
      const text = q.toString();
      return p.kind + (text ? `?${text}` : "");
    }),
  });
}
