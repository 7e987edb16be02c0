// Owners and dependents as a graph: each is a link to itself, so that it can be walked.
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { nameOf, type Kind } from "../api/discovery";
import type { Obj } from "../model/live";
import { familyOf, type Family, type Owner } from "../model/relatives";
import { objectLink } from "../route";

interface Node { id: string; title: string; kind: string; href?: string; missing?: boolean; x: number; y: number; here?: boolean }

interface Edge { from: Node; to: Node }

const width = 210, height = 40, gapX = 70, gapY = 12;

/** How many dependents of one owner are drawn, and how far down. */
const mostChildren = 40, mostLevels = 4;

export function GraphTab({ kind, object }: { kind: Kind; object: Obj }) {
  const [family, setFamily] = useState<Family>();
  const [wrong, setWrong] = useState("");
  const look = () => { void familyOf(object).then(setFamily, (error) => setWrong(messageOf(error))); };
  useEffect(look, [object.metadata.uid, JSON.stringify(object.metadata.ownerReferences)]);
  if (wrong) return <p class="note bad" role="alert">{wrong}</p>;
  if (!family) return <p class="empty" role="status">Looking at all kinds for what depends on it…</p>;
  const { nodes, edges } = layout(kind, object, family);
  const right = Math.max(...nodes.map((n) => n.x)) + width + 20, bottom = Math.max(...nodes.map((n) => n.y)) + height + 20;
  return (
    <div class="graph">
      <div class="tools">
        <span class="quiet">Owners are to the left, dependents to the right.</span>
        <button type="button" onClick={look}>Look again</button>
        {nodes.length === 1 && <span role="status">It has neither owners nor dependents.</span>}
        {family.unread.length > 0 && <span class="quiet">Not looked at, or not all: {family.unread.join(", ")}</span>}
      </div>
      <div class="canvas">
        <svg width={right} height={bottom} role="group" aria-label="Owners and dependents">
          {edges.map((e, i) => <path key={i} d={curve(e)} />)}
          {nodes.map((n) => n.href && !n.here
            ? <a key={n.id} href={n.href} aria-label={`${n.kind} ${n.title}`}><Box node={n} /></a>
            : <g key={n.id} aria-label={`${n.kind} ${n.title}`}><Box node={n} /></g>)}
        </svg>
      </div>
    </div>
  );
}

function Box({ node: n }: { node: Node }) {
  const clip = (text: string, most: number) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
  return (
    <>
      <title>{`${n.kind} ${n.title}${n.missing ? ", which isn't there or not yours to see" : ""}`}</title>
      <rect x={n.x} y={n.y} width={width} height={height} rx="6" class={n.here ? "here" : n.missing ? "missing" : ""} />
      <text x={n.x + 10} y={n.y + 17} class="name">{clip(n.title, 27)}</text>
      <text x={n.x + 10} y={n.y + 32} class="kind">{clip(n.missing ? `${n.kind} · missing` : n.kind, 32)}</text>
    </>
  );
}

function curve({ from, to }: Edge): string {
  const x1 = from.x + width, y1 = from.y + height / 2, x2 = to.x, y2 = to.y + height / 2, bend = (x2 - x1) / 2;
  return `M${x1} ${y1} C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`;
}

/** Places nodes by levels: each owner beside the middle of what it owns. */
function layout(kind: Kind, object: Obj, family: Family): { nodes: Node[]; edges: Edge[] } {
  const nodes: Node[] = [], edges: Edge[] = [], up = levelsOf(family.owners);
  const m = object.metadata;
  const here: Node = { id: m.uid, title: m.name, kind: nameOf(kind), x: 10 + up * (width + gapX), y: 0, here: true };
  nodes.push(here);
  let next = 10;
  const seen = new Set([m.uid]);
  const down = (node: Node, uid: string, level: number) => {
    const children = (family.dependents.get(uid) ?? []).filter((d) => !seen.has(d.metadata.uid));
    const begin = next;
    for (const d of children.slice(0, mostChildren)) {
      seen.add(d.metadata.uid);
      const child: Node = {
        id: d.metadata.uid, title: d.metadata.name, kind: nameOf(d.kind), href: objectLink(d.kind, d.metadata.namespace ?? "", d.metadata.name, "graph"),
        x: node.x + width + gapX, y: 0,
      };
      nodes.push(child);
      edges.push({ from: node, to: child });
      if (level < mostLevels) down(child, child.id, level + 1);
      else { child.y = next; next += height + gapY; }
    }
    if (children.length > mostChildren) {
      const more: Node = { id: `${uid} more`, title: `and ${children.length - mostChildren} more`, kind: "", x: node.x + width + gapX, y: next };
      next += height + gapY;
      nodes.push(more);
    }
    if (next === begin) next += height + gapY;
    node.y = (begin + next - gapY - height) / 2;
  };
  down(here, m.uid, 1);
  let above = 10;
  const upwards = (owned: Node, owners: Owner[]) => owners.forEach((o, i) => {
    const y = owners.length === 1 ? owned.y : Math.max(above, owned.y + (i - (owners.length - 1) / 2) * (height + gapY));
    above = y + height + gapY;
    const node: Node = {
      id: `${owned.id} ${o.uid}`, title: o.name, kind: o.relative ? nameOf(o.relative.kind) : o.kind, missing: o.missing, x: owned.x - width - gapX, y,
      href: o.relative && objectLink(o.relative.kind, o.relative.metadata.namespace ?? "", o.name, "graph"),
    };
    nodes.push(node);
    edges.push({ from: node, to: owned });
    upwards(node, o.owners);
  });
  upwards(here, family.owners);
  return { nodes, edges };
}

const levelsOf = (owners: Owner[]): number => owners.length === 0 ? 0 : 1 + Math.max(...owners.map((o) => levelsOf(o.owners)));
