// Which fields a refusal is about.
import type { Status } from "../api/client";
import type { Problem } from "../api/editor";

/** The path that a field of a Status names, such as spec.parts[0].name, data[a.b] or spec.parts[name="a"]. */
export function pathOfField(field: string): (string | number)[] {
  const path: (string | number)[] = [];
  for (const m of field.matchAll(/\[([^\]]*)\]|([^.[\]]+)/g)) {
    const name = m[1] ?? m[2];
    path.push(m[1] !== undefined && /^\d+$/.test(name) ? Number(name) : name.replace(/^"(.*)"$/, "$1"));
  }
  return path;
}

/** The problems that a refusal names, each with its place if it says one. */
export function problemsOf(status: Status): Problem[] {
  const causes = status.details?.causes ?? [];
  if (causes.length > 0) return causes.map((c) => ({ path: c.field ? pathOfField(c.field) : undefined, message: c.field ? `${c.field}: ${c.message}` : c.message }));
  const unknown = [...status.message.matchAll(/(?:unknown|duplicate) field "([^"]+)"/g)];
  if (unknown.length > 0) return unknown.map((m) => ({ path: pathOfField(m[1]), message: m[0] }));
  const mistyped = /Go struct field \w+\.([\w.[\]]+) of type/.exec(status.message);
  if (mistyped) return [{ path: pathOfField(mistyped[1]), message: status.message }];
  const unapplied = [...status.message.matchAll(/(?:: |\n +)(\.[\w-].*?): (.+)/g)]; // of what is applied
  if (unapplied.length > 0) return unapplied.map((m) => ({ path: pathOfField(m[1]), message: `${m[1]}: ${m[2]}` }));
  return [{ message: status.message }];
}

/** Which selector a refusal is about, if it's about one. */
export function selectorIn(message: string): "fields" | "labels" | undefined {
  return /field selector/.test(message) ? "fields" : /unable to parse|selector/.test(message) ? "labels" : undefined;
}
