// A form that a kind's schema makes, for a new object.
import { useState } from "preact/hooks";
import { call, messageOf, Refusal } from "../api/client";
import { loadEditor } from "../api/editor";
import { pathOf, type Kind } from "../api/discovery";
import { typeOf, type Schema, type Schemas } from "../api/openapi";
import { problemsOf } from "../model/problems";
import { namespaces } from "../model/namespaces";
import { go, objectLink } from "../route";
import { bounds } from "./schema";

type Value = any;
type Path = (string | number)[];

interface Context { schemas: Schemas; wrong: Map<string, string>; set(path: Path, value: Value): void }

export function FormTab({ kind, schemas, schema, inNamespace }: { kind: Kind; schemas: Schemas; schema?: Schema; inNamespace: string }) {
  const [object, setObject] = useState<Value>({});
  const [name, setName] = useState("");
  const [namespace, setNamespace] = useState(inNamespace);
  const [wrong, setWrong] = useState(new Map<string, string>());
  const [said, setSaid] = useState<{ text: string; good: boolean }>();
  const [text, setText] = useState("");
  const whole = () => ({
    apiVersion: kind.group ? `${kind.group}/${kind.version}` : kind.version, kind: kind.kind,
    metadata: { name, ...(kind.namespaced ? { namespace } : {}), ...object.metadata }, ...withoutMetadata(object),
  });
  const send = async (dry: boolean) => {
    setWrong(new Map());
    setText("");
    try {
      const q = new URLSearchParams({ fieldManager: "console", fieldValidation: "Strict", ...(dry ? { dryRun: "All" } : {}) });
      const answer = await call(`${pathOf(kind, namespace)}?${q}`, { method: "POST", type: "application/json", body: JSON.stringify(whole()) });
      const stored = await answer.json() as { metadata: { name: string; namespace?: string } };
      if (dry) setSaid({ text: "The server would take this.", good: true });
      else go(objectLink(kind, stored.metadata.namespace ?? "", stored.metadata.name));
    } catch (error) {
      setSaid({ text: messageOf(error), good: false });
      if (error instanceof Refusal) setWrong(new Map(problemsOf(error.status).filter((p) => p.path).map((p) => [JSON.stringify(p.path), p.message])));
    }
  };
  const preview = async () => setText((await loadEditor()).toYaml(whole()));
  const context: Context = { schemas, wrong, set: (path, value) => setObject((was: Value) => changed(was, path, value)) };
  const fields = Object.keys(schema?.properties ?? {}).filter((f) => !["apiVersion", "kind", "metadata", "status"].includes(f));
  return (
    <form class="sheet form" onSubmit={(e) => { e.preventDefault(); void send(false); }}>
      <div class="field"><label for="new-name">name <em class="tag">required</em></label><input id="new-name" required value={name} onInput={(e) => setName(e.currentTarget.value)} aria-invalid={wrong.has('["metadata","name"]')} spellcheck={false} autocomplete="off" /><Wrong text={wrong.get('["metadata","name"]')} /></div>
      {kind.namespaced && <div class="field"><label for="new-namespace">namespace</label><input id="new-namespace" required value={namespace} list="namespaces" onFocus={() => void namespaces.look()} onInput={(e) => setNamespace(e.currentTarget.value)} /><datalist id="namespaces">{namespaces.names.value.map((n) => <option key={n} value={n} />)}</datalist></div>}
      <MapInput label="labels" value={object.metadata?.labels} path={["metadata", "labels"]} of={{ type: "string" }} context={context} />
      {fields.map((f) => <Input key={f} label={f} schema={schema!.properties![f]} required={schema!.required?.includes(f) ?? false} value={object[f]} path={[f]} context={context} />)}
      {!schema && <p class="quiet">The server has no schema of it; write it as YAML after it's created.</p>}
      {said && <p class={said.good ? "note good" : "note bad"} role={said.good ? "status" : "alert"}>{said.text}</p>}
      <p class="buttons"><button type="submit" class="main">Create</button><button type="button" onClick={(e) => { if (e.currentTarget.form!.reportValidity()) void send(true); }}>Dry run</button><button type="button" onClick={preview}>As YAML</button></p>
      {text && <pre class="preview" tabIndex={0} aria-label="As YAML">{text}</pre>}
    </form>
  );
}

function withoutMetadata({ metadata, ...rest }: Value): Value { return rest; }

/** A copy of a value with another one at a path. What becomes undefined is left out. */
function changed(was: Value, path: Path, value: Value): Value {
  if (path.length === 0) return value;
  const [first, ...rest] = path;
  const copy: Value = Array.isArray(was) ? [...was] : was === undefined || was === null ? typeof first === "number" ? [] : {} : { ...was };
  const inner = changed(copy[first], rest, value);
  if (inner === undefined && !Array.isArray(copy)) delete copy[first];
  else if (inner === undefined) copy.splice(first as number, 1);
  else copy[first] = inner;
  return !Array.isArray(copy) && Object.keys(copy).length === 0 && path.length > 1 && value === undefined ? undefined : copy;
}

interface InputProps { label: string; schema: Schema; required: boolean; value: Value; path: Path; context: Context }

function Input(p: InputProps) {
  const schema = p.context.schemas.resolve(p.schema);
  if (schema.properties) return <Group {...p} schema={schema} />;
  if (schema.items) return <ListInput {...p} schema={schema} />;
  if (typeof schema.additionalProperties === "object") return <MapInput label={p.label} value={p.value} path={p.path} of={schema.additionalProperties} context={p.context} required={p.required} />;
  return <Scalar {...p} schema={schema} />;
}

function Wrong({ text }: { text?: string }) { return text ? <span class="wrong" role="alert">{text}</span> : null; }

function Scalar({ label, schema, required, value, path, context }: InputProps) {
  const id = `f-${path.join(".")}`, wrong = context.wrong.get(JSON.stringify(path));
  const set = (v: Value) => context.set(path, v);
  const number = schema.type === "integer" || schema.type === "number";
  return (
    <div class="field">
      <label for={id} title={schema.description}>{label} {required && <em class="tag">required</em>}</label>
      {schema.type === "boolean" || schema.enum
        ? <select id={id} aria-invalid={!!wrong} value={value === undefined ? "" : JSON.stringify(value)} onChange={(e) => set(e.currentTarget.value === "" ? undefined : JSON.parse(e.currentTarget.value))}>
            <option value="">{schema.default === undefined ? "not set" : `default: ${JSON.stringify(schema.default)}`}</option>
            {(schema.enum ?? [true, false]).map((v) => <option key={JSON.stringify(v)} value={JSON.stringify(v)}>{String(v)}</option>)}
          </select>
        : number || schema.type === "string"
        ? <input id={id} list={undefined} type={number ? "number" : "text"} step={schema.type === "number" ? "any" : 1} aria-invalid={!!wrong} value={value ?? ""} spellcheck={false} autocomplete="off"
            placeholder={schema.default === undefined ? "not set" : `default: ${JSON.stringify(schema.default)}`}
            onInput={(e) => { const text = e.currentTarget.value; set(text === "" ? undefined : number ? Number(text) : text); }} />
        : <AnyInput id={id} value={value} set={set} wrong={!!wrong} texts={typeOf(schema, context.schemas) === "integer or string"} />}
      <small>{typeOf(schema, context.schemas)}{bounds(schema).filter((b) => !b.startsWith("default")).map((b) => ` · ${b}`).join("")}</small>
      <Wrong text={wrong} />
    </div>
  );
}

/** Anything, as JSON; where texts are meant, what isn't JSON is one. The form can't be sent while it's neither. */
function AnyInput({ id, value, set, wrong, texts }: { id: string; value: Value; set(v: Value): void; wrong: boolean; texts: boolean }) {
  const [text, setText] = useState(value === undefined ? "" : JSON.stringify(value));
  const [bad, setBad] = useState(false);
  return <textarea id={id} rows={texts ? 1 : 2} spellcheck={false} placeholder={texts ? "not set" : "JSON"} value={text} aria-invalid={bad || wrong} onInput={(e) => {
    const t = e.currentTarget.value;
    setText(t);
    let parsed: Value, isJSON = true;
    try { parsed = t.trim() === "" ? undefined : JSON.parse(t); } catch { parsed = t; isJSON = false; }
    const broken = !isJSON && !texts;
    e.currentTarget.setCustomValidity(broken ? "This isn't JSON." : "");
    setBad(broken);
    if (!broken) set(parsed);
  }} />;
}

function Group({ label, schema, required, value, path, context }: InputProps) {
  const names = Object.keys(schema.properties!);
  const needed = names.filter((n) => schema.required?.includes(n));
  const few = names.length <= 8;
  const shown = names.filter((n) => few && path.length < 4 || needed.includes(n) || value?.[n] !== undefined);
  const open = required || value !== undefined;
  const wrong = context.wrong.get(JSON.stringify(path));
  if (!open) return <div class="field"><label>{label}</label><button type="button" onClick={() => context.set(path, {})}>Add {label}</button></div>;
  return (
    <fieldset>
      <legend title={schema.description}>{label} {required ? <em class="tag">required</em> : <button type="button" class="link" onClick={() => context.set(path, undefined)}>remove</button>}</legend>
      <Wrong text={wrong} />
      {shown.map((n) => <Input key={n} label={n} schema={schema.properties![n]} required={needed.includes(n)} value={value?.[n]} path={[...path, n]} context={context} />)}
      {shown.length < names.length && (
        <select aria-label={`Add a field to ${label}`} value="" onChange={(e) => { const n = e.currentTarget.value; if (n) context.set([...path, n], empty(context.schemas.resolve(schema.properties![n]))); }}>
          <option value="">Add a field…</option>{names.filter((n) => !shown.includes(n)).map((n) => <option key={n} value={n}>{n}</option>)}
        </select>
      )}
    </fieldset>
  );
}

/** What a field has when it's added. */
function empty(s: Schema): Value {
  if (s.default !== undefined) return s.default;
  if (s.enum) return s.enum[0];
  if (s.items) return [];
  if (s.properties || s.additionalProperties) return {};
  return s.type === "boolean" ? false : s.type === "integer" || s.type === "number" ? 0 : s.type === "string" ? "" : {};
}

function ListInput({ label, schema, required, value, path, context }: InputProps) {
  const all = (value ?? []) as Value[], of = context.schemas.resolve(schema.items!);
  return (
    <fieldset>
      <legend title={schema.description}>{label} <small>{typeOf(schema, context.schemas)}</small> {required && <em class="tag">required</em>}</legend>
      <Wrong text={context.wrong.get(JSON.stringify(path))} />
      {all.map((v, i) => (
        <div key={i} class="element">
          <Input label={`${i}`} schema={of} required={true} value={v} path={[...path, i]} context={context} />
          <button type="button" class="icon" aria-label={`Remove element ${i} of ${label}`} onClick={() => context.set(path, all.length === 1 ? undefined : all.toSpliced(i, 1))}>✕</button>
        </div>
      ))}
      <button type="button" onClick={() => context.set(path, [...all, empty(of)])}>Add to {label}</button>
    </fieldset>
  );
}

function MapInput({ label, value, path, of, context, required }: { label: string; value: Value; path: Path; of: Schema; context: Context; required?: boolean }) {
  const [name, setName] = useState("");
  const add = (name: string) => { if (name) { context.set([...path, name], empty(context.schemas.resolve(of))); setName(""); } };
  return (
    <fieldset>
      <legend>{label} <small>map of {typeOf(of, context.schemas)}</small> {required && <em class="tag">required</em>}</legend>
      <Wrong text={context.wrong.get(JSON.stringify(path))} />
      {Object.entries(value ?? {}).map(([n, v]) => (
        <div key={n} class="element">
          <Input label={n} schema={of} required={true} value={v} path={[...path, n]} context={context} />
          <button type="button" class="icon" aria-label={`Remove ${n} of ${label}`} onClick={() => context.set(Object.keys(value).length === 1 ? path : [...path, n], undefined)}>✕</button>
        </div>
      ))}
      <div class="element"><input aria-label={`New name in ${label}`} placeholder="name" value={name} onInput={(e) => setName(e.currentTarget.value)} onKeyDown={(e) => { if (e.key === "Enter") { e.preventDefault(); add(e.currentTarget.value); } }} /><button type="button" onClick={() => add(name)}>Add to {label}</button></div>
    </fieldset>
  );
}
