// What a kind's objects look like, from the OpenAPI documents that the server has of each group version.
import { json } from "./client";
import type { Kind } from "./discovery";

export interface Schema {
  type?: string;
  format?: string;
  description?: string;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  required?: string[];
  enum?: unknown[];
  default?: unknown;
  allOf?: Schema[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  $ref?: string;
  minimum?: number; maximum?: number; minLength?: number; maxLength?: number; minItems?: number; maxItems?: number; pattern?: string;
  nullable?: boolean;
  "x-kubernetes-group-version-kind"?: { group: string; version: string; kind: string }[];
  "x-kubernetes-validations"?: { rule: string; message?: string }[];
  "x-kubernetes-preserve-unknown-fields"?: boolean;
  "x-kubernetes-int-or-string"?: boolean;
  "x-kubernetes-list-type"?: string;
}

/** The schemas of one document, with which references are followed. */
export class Schemas {
  constructor(private all: Record<string, Schema>) {}

  /** The schema of a kind, or undefined if the document has none. */
  of(k: Kind): Schema | undefined {
    return Object.values(this.all).find((s) => s["x-kubernetes-group-version-kind"]?.some((g) => g.group === k.group && g.version === k.version && g.kind === k.kind));
  }

  /** A schema with its reference followed. What stands beside the reference, as a description, goes before. */
  resolve(s: Schema): Schema {
    for (let depth = 0; depth < 8; depth++) {
      const ref = s.$ref ?? (s.allOf?.length === 1 ? s.allOf[0].$ref : undefined);
      if (!ref) return s;
      const { $ref, allOf, ...own } = s;
      s = { ...this.all[ref.split("/").pop()!], ...own };
    }
    return s;
  }

  /** The schema at a path of names, in which a number is any element; undefined where anything may be. */
  at(s: Schema | undefined, path: string[]): Schema | undefined {
    for (const name of path) {
      if (!s) return undefined;
      s = this.resolve(s);
      if (s.items) s = s.items;
      else if (s.properties?.[name]) s = s.properties[name];
      else s = typeof s.additionalProperties === "object" ? s.additionalProperties : undefined;
    }
    return s && this.resolve(s);
  }
}

const documents = new Map<string, Promise<Schemas>>();

/** The schemas of a kind's group version. They're asked for once, and again after an error. */
export function schemasOf(k: Kind, anew = false): Promise<Schemas> {
  const path = k.group ? `apis/${k.group}/${k.version}` : `api/${k.version}`;
  let found = anew ? undefined : documents.get(path);
  if (!found) {
    found = json<{ components?: { schemas?: Record<string, Schema> } }>(`/openapi/v3/${path}`).then((doc) => new Schemas(doc.components?.schemas ?? {}));
    documents.set(path, found);
    found.catch(() => documents.delete(path));
  }
  return found;
}

/** What a schema's values are, in a word or two. */
export function typeOf(s: Schema, all: Schemas): string {
  s = all.resolve(s);
  if (s["x-kubernetes-int-or-string"] || s.format === "int-or-string") return "integer or string";
  if (s.type === "array" || s.items) return `list of ${s.items ? typeOf(s.items, all) : "anything"}`;
  if (typeof s.additionalProperties === "object") return `map of ${typeOf(s.additionalProperties, all)}`;
  if (s.enum) return `one of ${s.enum.map((v) => JSON.stringify(v)).join(", ")}`;
  if (s.type === "string" && s.format) return s.format;
  return s.type ?? "anything";
}
