// What a kind is: its schema as a page, its versions, what its definition's conditions say; and a form to make one.
import { useEffect, useState } from "preact/hooks";
import { messageOf } from "../api/client";
import { kindOf, kinds, linkOf, nameOf, type Kind } from "../api/discovery";
import { schemasOf, type Schema, type Schemas } from "../api/openapi";
import { may } from "../api/rights";
import { age } from "../model/age";
import { useLive } from "../model/live";
import { namespaceOn, paneLink } from "../model/panes";
import { replace, route, withQuery } from "../route";
import { FormTab } from "./form";
import { SchemaTab } from "./schema";

export function DefinitionsView() {
  const words = (route.value.query.get("q") ?? "").toLowerCase();
  const chosen = route.value.path.join("/");
  const all = kinds.value!.filter((k) => k.verbs.includes("get") || k.verbs.includes("list"));
  const found = all.filter((k) => `${k.kind} ${nameOf(k)}`.toLowerCase().includes(words));
  const kind = kindOf(chosen) ?? (chosen ? undefined : all.find((k) => k.custom) ?? all[0]);
  return (
    <div class="definitions">
      <nav class="side" aria-label="Kinds">
        <input type="search" aria-label="Search definitions" placeholder="Search kinds" value={route.value.query.get("q") ?? ""} onInput={(e) => replace(withQuery({ q: e.currentTarget.value }))} />
        <ul>{found.map((k) => (
          <li key={linkOf(k)}><a href={`#/definitions/${linkOf(k)}${words ? `?q=${encodeURIComponent(words)}` : ""}`} aria-current={kind && nameOf(kind) === nameOf(k) ? "page" : undefined}>{k.kind}<small>{k.group || "core"}</small></a></li>
        ))}</ul>
      </nav>
      {kind ? <OneDefinition key={linkOf(kind)} kind={kind} /> : <p class="empty">{chosen} isn't served here.</p>}
    </div>
  );
}

interface Definition {
  metadata: { name: string; generation: number };
  spec: { versions: { name: string; served: boolean; storage: boolean; deprecated?: boolean; deprecationWarning?: string }[]; names: { shortNames?: string[]; categories?: string[] } };
  status?: { conditions?: { type: string; status: string; reason?: string; message?: string; lastTransitionTime?: string }[]; storedVersions?: string[] };
}

function OneDefinition({ kind }: { kind: Kind }) {
  const [schemas, setSchemas] = useState<Schemas>();
  const [schema, setSchema] = useState<Schema>();
  const live = useLive(kinds.value!.find((k) => k.group === "apiextensions.k8s.io" && k.resource === "customresourcedefinitions" && kind.group.includes(".")), "", nameOf(kind));
  const definition = live.gone ? undefined : live.object as Definition | undefined;
  const [wrong, setWrong] = useState("");
  const tab = route.value.query.get("tab") || "schema";
  const namespace = namespaceOn(route.value);
  const creatable = may("create", kind, kind.namespaced ? namespace : ""); // there
  useEffect(() => {
    void schemasOf(kind, true).then((all) => { setSchemas(all); setSchema(all.of(kind)); setWrong(""); }, (error) => setWrong(messageOf(error)));
  }, [definition?.metadata.generation]);
  const tabs = [{ name: "schema", title: "Schema" }, { name: "versions", title: "Versions and conditions" }, ...(creatable || tab === "form" ? [{ name: "form", title: "New object" }] : [])];
  return (
    <section class="definition" aria-label={kind.kind}>
      <div class="tools">
        <h1>{kind.kind}</h1><span class="quiet mono">{kind.group ? `${kind.group}/${kind.version}` : kind.version}</span>
        <span class="quiet">{kind.resource}{kind.shortNames.length > 0 && ` (${kind.shortNames.join(", ")})`} · {kind.namespaced ? "in namespaces" : "of the cluster"}</span>
        <span class="grow" />
        {kind.verbs.includes("list") && <a class="button" href={paneLink([{ kind: linkOf(kind) }])}>Objects</a>}
      </div>
      <div class="tabs" role="tablist" aria-label="What to see of it">
        {tabs.map((t) => <button key={t.name} type="button" role="tab" aria-selected={t.name === tab} onClick={() => replace(withQuery({ tab: t.name === "schema" ? "" : t.name }))}>{t.title}</button>)}
      </div>
      <div class="tab" role="tabpanel" aria-label={tab}>
        {wrong && <p class="note bad" role="alert">{wrong}</p>}
        {tab === "versions" ? <Versions kind={kind} definition={definition} hidden={live.health.state === "refused"} />
          : !schemas ? !wrong && <p class="empty" role="status">Reading…</p>
          : tab === "form" ? <FormTab kind={kind} schemas={schemas} schema={schema} inNamespace={namespace} />
          : schema ? <SchemaTab schemas={schemas} schema={schema} /> : <p class="empty">The server has no schema of it: any field may be there.</p>}
      </div>
    </section>
  );
}

function Versions({ kind, definition, hidden }: { kind: Kind; definition?: Definition; hidden: boolean }) {
  const conditions = definition?.status?.conditions ?? [];
  return (
    <div class="sheet">
      <h2>Versions</h2>
      <table class="list" aria-label="Versions">
        <thead><tr><th>Version</th><th>Served</th><th>Stored</th><th>Deprecated</th></tr></thead>
        <tbody>
          {definition ? definition.spec.versions.map((v) => (
            <tr key={v.name}><td><a href={`#/definitions/${linkOf({ ...kind, version: v.name })}`}>{v.name}</a></td><td>{v.served ? "yes" : "no"}</td>
              <td>{v.storage ? "new objects" : definition.status?.storedVersions?.includes(v.name) ? "some objects" : ""}</td><td class="wide">{v.deprecated ? v.deprecationWarning || "deprecated" : ""}</td></tr>
          )) : kind.versions.map((v) => <tr key={v}><td><a href={`#/definitions/${linkOf({ ...kind, version: v })}`}>{v}</a></td><td>yes</td><td /><td class="wide" /></tr>)}
        </tbody>
      </table>
      {conditions.length > 0 && (
        <>
          <h2>Conditions</h2>
          <table class="list" aria-label="Conditions">
            <thead><tr><th>Condition</th><th>Status</th><th>Since</th><th>Reason</th><th>Message</th></tr></thead>
            <tbody>{conditions.map((c) => <tr key={c.type}><td>{c.type}</td><td>{c.status}</td><td>{c.lastTransitionTime && age(c.lastTransitionTime)}</td><td>{c.reason}</td><td class="wide">{c.message}</td></tr>)}</tbody>
          </table>
        </>
      )}
      {!definition && <p class="quiet">{!kind.group.includes(".") ? "It's built in, so it has no definition with conditions." : hidden ? "If it has a definition, that isn't yours to see." : "It has no definition with conditions: it's built in, or of another server."}</p>}
    </div>
  );
}
