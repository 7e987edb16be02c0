// One object: what it is, and all that can be done with it.
import { useLayoutEffect, useState } from "preact/hooks";
import { kindOf, linkOf, nameOf, type Kind } from "../api/discovery";
import { may } from "../api/rights";
import { useLive, type Live, type Obj } from "../model/live";
import { age } from "../model/age";
import { paneLink } from "../model/panes";
import { replace, route, withQuery } from "../route";
import { viewCommands } from "../ui/palette";
import { typing } from "../ui/keys";
import { DeleteDialog } from "./remove";
import { EventsTab } from "./events";
import { GraphTab } from "./graph";
import { HistoryTab } from "./history";
import { TreeTab } from "./tree";
import { YamlTab } from "./yaml";

const tabs = [{ name: "tree", title: "Tree" }, { name: "yaml", title: "YAML" }, { name: "graph", title: "Owners and dependents" }, { name: "events", title: "Events" }, { name: "history", title: "History" }];

export function ObjectView() {
  const [group, version, resource, ns, name] = route.value.path;
  const namespace = !ns || ns === "-" ? "" : ns;
  const kind = kindOf(`${group}/${version}/${resource}`);
  const live = useLive(kind, namespace, name);
  if (!kind) return <p class="empty">{resource} of {group} isn't served here.</p>;
  return <Known key={route.value.path.join("/")} kind={kind} namespace={namespace} name={name} live={live} />;
}

function Known({ kind, namespace, name, live }: { kind: Kind; namespace: string; name: string; live: Live }) {
  const tab = route.value.query.get("tab") || "tree";
  const [editing, setEditing] = useState(false);
  const [removing, setRemoving] = useState(false);
  const { object } = live;
  const show = (to: string) => replace(withQuery({ tab: to === "tree" ? "" : to, version: "" }));
  const mayReplace = may("update", kind, namespace, name), mayApply = may("patch", kind, namespace, name), mayEdit = mayReplace || mayApply;
  const mayDelete = may("delete", kind, namespace, name);
  const edit = () => { if (mayEdit && object && !live.gone) { show("yaml"); setEditing(true); } };
  const remove = () => { if (mayDelete && object && !live.gone) setRemoving(true); };
  useLayoutEffect(() => { // at once: a key may come before the next frame
    viewCommands.value = [
      ...(mayEdit ? [{ title: "Edit", hint: `${kind.kind} ${name}`, run: edit }] : []),
      ...(mayDelete ? [{ title: "Delete", hint: `${kind.kind} ${name}`, run: remove }] : []),
      ...tabs.map((t) => ({ title: t.title, hint: `tab of ${name}`, run: () => show(t.name) })),
    ];
    const key = (e: KeyboardEvent) => {
      if (typing(e) || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
      const at = tabs.findIndex((t) => t.name === tab);
      if (e.key === "e") edit();
      else if (e.key === "x") remove();
      else if (e.key === "]") show(tabs[(at + 1) % tabs.length].name);
      else if (e.key === "[") show(tabs[(at + tabs.length - 1) % tabs.length].name);
      else return;
      e.preventDefault();
    };
    addEventListener("keydown", key);
    return () => { removeEventListener("keydown", key); viewCommands.value = []; };
  }, [tab, mayEdit, mayDelete, object, live.gone]);
  return (
    <div class="object">
      <div class="tools">
        <nav aria-label="Where it is" class="crumbs">
          <a href={paneLink([{ kind: linkOf(kind) }])}>{nameOf(kind)}</a>
          {namespace && <><i>›</i><a href={paneLink([{ kind: linkOf(kind), namespace }])}>{namespace}</a></>}
          <i>›</i><h1>{name}</h1>
        </nav>
        <Facts live={live} />
        <span class="grow" />
        {mayEdit && !live.gone && <button type="button" onClick={edit} aria-keyshortcuts="e">Edit</button>}
        {mayDelete && !live.gone && object && <button type="button" onClick={remove} aria-keyshortcuts="x">Delete…</button>}
      </div>
      <div class="tabs" role="tablist" aria-label="What to see of it">
        {tabs.map((t) => (
          <button key={t.name} type="button" role="tab" id={`tab-${t.name}`} aria-selected={t.name === tab} aria-controls="tab" tabIndex={t.name === tab ? 0 : -1}
            onClick={() => show(t.name)} onKeyDown={(e) => {
              const at = tabs.findIndex((other) => other.name === tab) + (e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? tabs.length - 1 : 0);
              if (e.key === "ArrowRight" || e.key === "ArrowLeft") { const to = tabs[at % tabs.length].name; show(to); document.getElementById(`tab-${to}`)?.focus(); }
            }}>{t.title}</button>
        ))}
      </div>
      <div id="tab" class="tab" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {object && (editing || tab === "yaml") && ( // what is edited stays while another tab is looked at
          <div class="kept" hidden={tab !== "yaml"}><YamlTab kind={kind} live={live} object={object} editing={editing} setEditing={setEditing} mayReplace={mayReplace} mayApply={mayApply} /></div>
        )}
        {!object ? <p class="empty" role="status">{live.health.message ?? (live.known ? `There is no ${kind.singular || kind.kind} ${name}.` : "Reading…")}</p>
          : tab === "yaml" ? null
          : tab === "graph" ? <GraphTab kind={kind} object={object} />
          : tab === "events" ? <EventsTab object={object} />
          : tab === "history" ? <HistoryTab kind={kind} object={object} />
          : <TreeTab live={live} object={object} />}
      </div>
      {removing && object && <DeleteDialog kind={kind} object={object} onClose={() => setRemoving(false)} />}
    </div>
  );
}

function Facts({ live }: { live: Live }) {
  const { object } = live;
  if (!object) return null;
  return (
    <>
      {live.gone ? <em class="tag bad" role="status">deleted</em> : object.metadata.deletionTimestamp && <em class="tag warn" role="status">is being deleted{waitsFor(object)}</em>}
      <span class="quiet" title={object.metadata.creationTimestamp}>{age(object.metadata.creationTimestamp)} old · version {object.metadata.resourceVersion}</span>
      <span class={`dot ${live.health.state}`} title={live.health.message ?? live.health.state} />
    </>
  );
}

function waitsFor(object: Obj): string {
  const { finalizers } = object.metadata;
  return finalizers?.length ? `, waits for ${finalizers.join(", ")}` : "";
}
