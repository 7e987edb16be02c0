// The objects of a kind as its own columns tell them, live; several kinds side by side.
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";
import { kindOf, kinds, linkOf, nameOf, type Kind } from "../api/discovery";
import { schemasOf, type Schemas } from "../api/openapi";
import { may } from "../api/rights";
import { namespaces } from "../model/namespaces";
import { formLink, mostPanes, paneLink, panesOf, type Pane } from "../model/panes";
import { selectorIn } from "../model/problems";
import { Rows } from "../model/rows";
import { Streams } from "../model/streams";
import { suggestFields } from "../model/suggest";
import { go, objectLink, replace, route } from "../route";
import { viewCommands } from "../ui/palette";
import { Table } from "../ui/table";

export function ObjectsView() {
  const panes = panesOf(route.value);
  const rows = useRows(panes);
  useEffect(() => {
    viewCommands.value = panes.map((p) => ({ title: `Close ${p.kind.split("/").pop()}`, hint: "pane", run: () => go(paneLink(panes.filter((other) => other !== p))) }));
    return () => { viewCommands.value = []; };
  }, [route.value]);
  if (panes.length === 0) {
    const first = kindOf("core/v1/namespaces") ?? kinds.value!.find((k) => k.verbs.includes("watch"));
    if (first) queueMicrotask(() => replace(paneLink([{ kind: linkOf(first) }])));
    return null;
  }
  const change = (at: number, p: Pane | undefined) => paneLink(p ? panes.with(at, p) : panes.toSpliced(at, 1));
  return (
    <div class={`panes of${panes.length}`}>
      {panes.map((p, at) => <OnePane key={`${at} ${p.kind}`} pane={p} rows={rows[at]} alone={panes.length === 1} full={panes.length >= mostPanes}
        type={(changes) => replace(change(at, { ...p, ...changes }))} choose={(kind) => go(change(at, { kind, namespace: p.namespace }))}
        close={() => go(change(at, undefined))} beside={() => go(paneLink([...panes, { kind: p.kind, namespace: p.namespace }]))} />)}
    </div>
  );
}

interface PaneProps { pane: Pane; rows: Rows; alone: boolean; full: boolean; type(changes: Partial<Pane>): void; choose(kind: string): void; close(): void; beside(): void }

function OnePane(props: PaneProps) {
  const { pane, rows, type } = props;
  const kind = kindOf(pane.kind);
  const state = useSaid(pane, rows);
  const listed = kinds.value!.filter((k) => k.verbs.includes("list"));
  return (
    <section class="pane" aria-label={kind ? nameOf(kind) : pane.kind}>
      <div class="tools">
        <select aria-label="Kind" class="kind" value={kind ? linkOf(kind) : ""} onChange={(e) => props.choose(e.currentTarget.value)}>
          {!kind && <option value="">{pane.kind}</option>}
          {listed.map((k) => <option key={linkOf(k)} value={linkOf(k)}>{nameOf(k)}</option>)}
          {kind && !listed.some((k) => linkOf(k) === linkOf(kind)) && <option value={linkOf(kind)}>{nameOf(kind)} {kind.version}</option>}
        </select>
        {kind?.namespaced && <NamespaceField value={pane.namespace ?? ""} onInput={(namespace) => type({ namespace })} />}
        <Field label="Labels" hint="app=web" value={pane.labels} onInput={(labels) => type({ labels })} wrong={state.wrong === "labels" ? state.message : ""} />
        <Field label="Fields" hint="spec.size>3" value={pane.fields} onInput={(fields) => type({ fields })} wrong={state.wrong === "fields" ? state.message : ""} of={kind} />
        <input type="search" aria-label="Filter rows" placeholder="Filter" value={pane.words ?? ""} onInput={(e) => type({ words: e.currentTarget.value })} />
        <span class="grow" />
        {state.wider && <button type="button" aria-pressed={!!pane.wide} title="All columns" onClick={() => type({ wide: pane.wide ? "" : "1" })}>Wide</button>}
        {kind && may("create", kind, pane.namespace) && <a class="button" href={formLink(linkOf(kind), pane.namespace)}>New</a>}
        {!props.full && <button type="button" onClick={props.beside} title="Another kind side by side">Split</button>}
        {!props.alone && <button type="button" class="icon" onClick={props.close} aria-label="Close pane">✕</button>}
      </div>
      {kind ? <TableOf kind={kind} pane={pane} rows={rows} type={type} /> : <p class="empty">{pane.kind} isn't served here.</p>}
      <p class="foot" role="status"><span class={`dot ${state.state}`} aria-hidden="true" />{state.text}</p>
    </section>
  );
}

/** A selector. That of fields has the kind whose fields it may name. */
function Field(p: { label: string; hint: string; value?: string; wrong: string; of?: Kind; onInput(text: string): void }) {
  const id = useId();
  const [schemas, setSchemas] = useState<Schemas>();
  const learn = () => { if (p.of) void schemasOf(p.of).then(setSchemas, () => {}); }; // without it nothing is suggested
  const found = p.of && schemas ? suggestFields(schemas, p.of, p.value ?? "") : [];
  return (
    <span class="selector">
      <input aria-label={`${p.label} selector`} title={`${p.label} selector`} placeholder={`${p.label.toLowerCase()} ${p.hint}`} value={p.value ?? ""} aria-invalid={p.wrong !== ""}
        aria-describedby={p.wrong ? id : undefined} list={found.length > 0 ? `${id}-fields` : undefined} spellcheck={false} autocomplete="off" onFocus={learn} onInput={(e) => p.onInput(e.currentTarget.value)} />
      {found.length > 0 && <datalist id={`${id}-fields`}>{found.map((text) => <option key={text} value={text} />)}</datalist>}
      {p.wrong && <span class="refusal" id={id} role="alert">{p.wrong}</span>}
    </span>
  );
}

function NamespaceField(p: { value: string; onInput(text: string): void }) {
  useEffect(() => { void namespaces.look(); }, []);
  const names = namespaces.names.value;
  if (names.length === 0) { // not the user's to list
    return <input class="namespace" aria-label="Namespace" placeholder="all namespaces" value={p.value} onInput={(e) => p.onInput(e.currentTarget.value)} />;
  }
  return (
    <select aria-label="Namespace" value={p.value} onChange={(e) => p.onInput(e.currentTarget.value)}>
      <option value="">all namespaces</option>
      {p.value && !names.includes(p.value) && <option value={p.value}>{p.value}</option>}
      {names.map((n) => <option key={n} value={n}>{n}</option>)}
    </select>
  );
}

/** How long after the last letter a selector is asked for, in ms. */
const typeDelay = 250;

/** Keeps the rows of panes what they ask for. */
function useRows(panes: Pane[]): Rows[] {
  const all = useRef<{ kind: string; rows: Rows }[]>([]);
  all.current = panes.map((p, at) => all.current[at]?.kind === p.kind ? all.current[at] : { kind: p.kind, rows: new Rows() });
  const streams = useMemo(() => new Streams(), []);
  const asked = useRef("");
  const of = panes.map((p) => kindOf(p.kind));
  const shown = of.map((k) => k ? linkOf(k) : "").join();
  useEffect(() => {
    const ask = () => streams.set(panes.flatMap((p, at) => {
      const kind = of[at];
      return kind ? [{ kind, namespace: p.namespace ?? "", labels: p.labels ?? "", fields: p.fields ?? "", rows: all.current[at].rows }] : [];
    }));
    const typed = asked.current === shown; // else there are other kinds
    asked.current = shown;
    if (!typed) return ask();
    const timer = setTimeout(ask, typeDelay);
    return () => clearTimeout(timer);
  }, [shown, JSON.stringify(panes.map((p) => [p.namespace, p.labels, p.fields]))]);
  useEffect(() => () => streams.close(), []);
  return all.current.map((a) => a.rows);
}

interface Said { state: string; text: string; message: string; wider: boolean; wrong?: "labels" | "fields" }

/** What to say of a pane's rows, and which of its selectors is wrong. The pane is drawn anew only when that has changed. */
function useSaid(pane: Pane, rows: Rows): Said {
  const [said, say] = useState(() => saidOf(rows));
  useEffect(() => {
    const look = () => say((was) => { const now = saidOf(rows); return now.text === was.text && now.state === was.state && now.message === was.message && now.wider === was.wider ? was : now; });
    look();
    return rows.subscribe(look);
  }, [rows]);
  useEffect(() => rows.setWords(pane.words ?? ""), [rows, pane.words]);
  return said;
}

function saidOf(rows: Rows): Said {
  const { state, message = "" } = rows.health;
  const count = `${rows.shown.length === rows.size ? "" : `${rows.shown.length.toLocaleString("en")} of `}${rows.size.toLocaleString("en")} ${rows.size === 1 ? "object" : "objects"}`;
  const wrong = state === "refused" ? selectorIn(message) : undefined;
  const text = wrong ? "The selector isn't understood." : state === "refused" ? message : state === "waiting" ? `${count} · cut off: ${message}` : !rows.synced ? `${count} · reading` : state === "polled" ? `${count} · asked for every five seconds` : `${count} · live`;
  return { state, text, message, wider: rows.columns.some((c) => c.priority > 0), wrong };
}

function TableOf({ kind, pane, rows, type }: { kind: Kind; pane: Pane; rows: Rows; type: PaneProps["type"] }) {
  const at = useRef<HTMLDivElement>(null);
  const shown = useRef<Table | null>(null);
  const latest = useRef(type);
  latest.current = type;
  useEffect(() => {
    const t = new Table({
      label: nameOf(kind), rows, namespaced: kind.namespaced && !pane.namespace,
      wide: !!pane.wide, at: pane.at ?? "",
      open: (row) => { latest.current({ at: row.key }); go(objectLink(kind, row.namespace, row.name)); }, // the way back leads to the row
      order: (o) => latest.current({ sort: o.column && (o.down ? "-" : "") + o.column }),
    });
    shown.current = t;
    at.current!.replaceChildren(t.element);
    return () => t.close();
  }, [kind.resource, kind.group, kind.version, rows, kind.namespaced && !pane.namespace, !!pane.wide]);
  useEffect(() => {
    const sort = pane.sort ?? "";
    const order = { column: sort.replace(/^-/, ""), down: sort.startsWith("-") };
    rows.setOrder(order);
    shown.current?.setOrder(order);
  }, [pane.sort, rows, !!pane.namespace, !!pane.wide]);
  return <div class="hold" ref={at} />;
}
