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
