// What may stand at a place of an object, by its kind's schema.
import type { Kind } from "../api/discovery";
import type { Suggestion } from "../api/editor";
import { typeOf, type Schemas } from "../api/openapi";

export function suggest(all: Schemas, kind: Kind, path: string[], of: "name" | "value"): Suggestion[] {
  const schema = all.at(all.of(kind), path);
  if (!schema) return [];
  if (of === "value") {
    const values = schema.enum ?? (schema.type === "boolean" ? [true, false] : path.length === 1 && path[0] === "kind" ? [kind.kind] : []);
    return values.map((v) => ({ label: String(v) }));
  }
  const here = schema.items ? all.resolve(schema.items) : schema; // after a list's name an element may begin
  return Object.entries(here.properties ?? {}).map(([name, s]) => {
    const field = all.resolve(s), type = typeOf(field, all);
    const holds = field.type === "object" || field.properties || field.type === "array" || field.additionalProperties;
    return { label: name, detail: here.required?.includes(name) ? `${type}, required` : type, info: field.description, text: holds ? `${name}:` : `${name}: ` };
  });
}

/** How many fields are suggested at once. */
const mostFields = 60;

/** What a selector of fields may become that is being typed: the text with each field's name that fits at its end. */
export function suggestFields(all: Schemas, kind: Kind, text: string): string[] {
  const typed = /[\w.$/[\]*-]*$/.exec(text)![0], before = text.slice(0, text.length - typed.length);
  if (/[=<>^(]\s*$/.test(before) || /\([^)]*$/.test(before)) return []; // a value is typed
  const path = typed.split("."), begun = path.pop()!;
  const schema = all.at(all.of(kind), path.flatMap((name) => name.endsWith("[*]") ? [name.slice(0, -3), "0"] : [name]));
  return Object.entries(schema?.properties ?? {}).filter(([name]) => name.startsWith(begun)).slice(0, mostFields).map(([name, s]) => {
    const field = all.resolve(s), inner = field.items && all.resolve(field.items);
    return before + [...path, name].join(".") + (inner ? "[*]" : "") + ((inner ?? field).properties ? "." : "");
  });
}
