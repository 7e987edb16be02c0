// A schema as a page: each field with its type, what it must be, and what it's for.
import { useState } from "preact/hooks";
import { typeOf, type Schema, type Schemas } from "../api/openapi";

export function SchemaTab({ schemas, schema }: { schemas: Schemas; schema: Schema }) {
  return (
    <div class="sheet schema">
      {schema.description && <p class="about">{schema.description}</p>}
      <Fields schemas={schemas} schema={schema} level={0} />
    </div>
  );
}

/** Fields that are open at first: what a kind is about. */
const openAtFirst = ["spec", "status"];

function Fields({ schemas, schema, level }: { schemas: Schemas; schema: Schema; level: number }) {
  const names = Object.keys(schema.properties ?? {});
  return <ul class="fields">{names.map((name) => <FieldOf key={name} name={name} schemas={schemas} of={schema} level={level} />)}</ul>;
}

function FieldOf({ name, schemas, of, level }: { name: string; schemas: Schemas; of: Schema; level: number }) {
  const field = schemas.resolve(of.properties![name]);
  const inner = innerOf(field, schemas);
  const [open, setOpen] = useState(level === 0 && openAtFirst.includes(name));
  const head = (
    <>
      <b class="mono">{name}</b> <span class="type">{typeOf(field, schemas)}</span>
      {of.required?.includes(name) && <em class="tag">required</em>}
      {bounds(field).map((text) => <em key={text} class="tag plain">{text}</em>)}
    </>
  );
  return (
    <li>
      {inner ? (
        <details open={open} onToggle={(e) => setOpen(e.currentTarget.open)}>
          <summary>{head}</summary>
          <About field={field} />
          {open && <Fields schemas={schemas} schema={inner} level={level + 1} />}
        </details>
      ) : <div class="leaf">{head}<About field={field} /></div>}
    </li>
  );
}

function About({ field }: { field: Schema }) {
  return (
    <>
      {field.description && <p class="quiet">{field.description}</p>}
      {field["x-kubernetes-validations"]?.map((v) => <p key={v.rule} class="quiet">Rule: <code>{v.rule}</code>{v.message && ` — ${v.message}`}</p>)}
    </>
  );
}

/** The schema of the fields that a field holds, itself or in its elements. */
function innerOf(field: Schema, schemas: Schemas): Schema | undefined {
  if (field.properties) return field;
  const of = field.items ?? (typeof field.additionalProperties === "object" ? field.additionalProperties : undefined);
  return of && innerOf(schemas.resolve(of), schemas);
}

/** What a value must be besides its type. */
export function bounds(s: Schema): string[] {
  const all: string[] = [];
  const say = (title: string, value: unknown) => { if (value !== undefined) all.push(`${title} ${typeof value === "string" ? value : JSON.stringify(value)}`); };
  say("default", s.default);
  say("at least", s.minimum);
  say("at most", s.maximum);
  say("letters ≥", s.minLength);
  say("letters ≤", s.maxLength);
  say("elements ≥", s.minItems);
  say("elements ≤", s.maxItems);
  say("like", s.pattern);
  if (s.nullable) all.push("or null");
  if (s["x-kubernetes-preserve-unknown-fields"]) all.push("any field");
  return all;
}
