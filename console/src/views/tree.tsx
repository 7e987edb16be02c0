// An object as a tree that opens and closes, with what changed last.
import { useRef, useState } from "preact/hooks";
import type { Live, Obj } from "../model/live";

interface Line { path: (string | number)[]; key: string; value: unknown; open?: boolean; level: number }

/** How many lines are drawn; what is closed doesn't count. */
const most = 3000;

/** What is closed at first: who set which field is long, and nobody looks for it. */
const closedAtFirst = [JSON.stringify(["metadata", "managedFields"])];

export function TreeTab({ live, object }: { live: Live; object: Obj }) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set(closedAtFirst));
  const [active, setActive] = useState("[]");
  const tree = useRef<HTMLDivElement>(null);
  const lines: Line[] = [];
  collect(object, [], "", closed, lines);
  const at = Math.max(0, lines.findIndex((l) => JSON.stringify(l.path) === active));
  const toggle = (l: Line, open?: boolean) => {
    const id = JSON.stringify(l.path), next = new Set(closed);
    if (open ?? next.has(id)) next.delete(id);
    else next.add(id);
    setClosed(next);
  };
  const move = (to: number) => {
    const line = lines[Math.max(0, Math.min(lines.length - 1, to))];
    setActive(JSON.stringify(line.path));
    tree.current?.children[lines.indexOf(line)]?.scrollIntoView({ block: "nearest" });
  };
  return (
    <div class="tree" role="tree" aria-label="Fields" tabIndex={0} ref={tree} aria-activedescendant={`line-${at}`} onKeyDown={(e) => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const line = lines[at];
      if (e.key === "ArrowDown" || e.key === "j") move(at + 1);
      else if (e.key === "ArrowUp" || e.key === "k") move(at - 1);
      else if (e.key === "Home") move(0);
      else if (e.key === "End") move(lines.length - 1);
      else if (e.key === "ArrowRight" && line.open === false) toggle(line, true);
      else if (e.key === "ArrowRight") move(at + 1);
      else if (e.key === "ArrowLeft" && line.open) toggle(line, false);
      else if (e.key === "ArrowLeft") move(lines.findIndex((l) => JSON.stringify(l.path) === JSON.stringify(line.path.slice(0, -1))));
      else if ((e.key === "Enter" || e.key === " ") && line.open !== undefined) toggle(line);
      else return;
      e.preventDefault();
      e.stopPropagation();
    }}>
      {lines.slice(0, most).map((l, i) => {
        const id = JSON.stringify(l.path), changed = live.changed.has(id);
        return (
          <div key={changed ? `${id} ${live.at}` : id} id={`line-${i}`} role="treeitem" aria-level={l.level} aria-expanded={l.open} aria-selected={i === at}
            class={`line${changed ? " changed" : ""}${i === at ? " active" : ""}`} style={{ paddingLeft: `${l.level * 16}px` }}
            onClick={() => { setActive(id); if (l.open !== undefined) toggle(l); }}>
            <span class="twist" aria-hidden="true">{l.open === undefined ? "" : l.open ? "▾" : "▸"}</span>
            <b>{l.key}</b>{l.open === undefined ? <Value of={l.value} /> : <small>{sizeOf(l.value)}</small>}
          </div>
        );
      })}
      {lines.length > most && <p class="quiet">And {lines.length - most} lines more: the YAML has all.</p>}
    </div>
  );
}

function collect(value: unknown, path: (string | number)[], key: string, closed: ReadonlySet<string>, lines: Line[]): void {
  const holds = typeof value === "object" && value !== null && Object.keys(value).length > 0;
  const open = holds ? !closed.has(JSON.stringify(path)) : undefined;
  if (path.length > 0) lines.push({ path, key, value, open, level: path.length });
  if (!holds || path.length > 0 && !open) return;
  const list = Array.isArray(value);
  for (const [name, member] of Object.entries(value as object)) collect(member, [...path, list ? Number(name) : name], list ? `${name}` : name, closed, lines);
}

function sizeOf(value: unknown): string {
  const n = Object.keys(value as object).length;
  return Array.isArray(value) ? `[${n}]` : `{${n}}`;
}

function Value({ of: value }: { of: unknown }) {
  if (typeof value === "string") return <span class="text">{value === "" ? "\"\"" : value}</span>;
  if (typeof value === "object") return <span class="quiet">{value === null ? "null" : Array.isArray(value) ? "[]" : "{}"}</span>;
  return <span class="plain">{String(value)}</span>;
}
