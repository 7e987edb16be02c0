// What the view of objects has side by side, as it's in the address.
import { link, parse, type Route } from "../route";

export interface Pane {
  kind: string; // as in links
  namespace?: string;
  labels?: string; // selector
  fields?: string; // selector
  words?: string;
  sort?: string; // a column, with a - before it from the largest down
}

/** How many panes fit on a screen. */
export const mostPanes = 4;

const names: [keyof Pane, string][] = [["namespace", "ns"], ["labels", "l"], ["fields", "f"], ["words", "q"], ["sort", "sort"]];

export function panesOf(r: Route): Pane[] {
  return r.query.getAll("pane").slice(0, mostPanes).map((text) => {
    const { view, path, query } = parse(text);
    const pane: Pane = { kind: [view, ...path].join("/") };
    for (const [field, name] of names) pane[field] = query.get(name) ?? "";
    return pane;
  });
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
