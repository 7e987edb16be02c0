// Which kinds there are, as discovery tells it.
import { signal } from "@preact/signals";
import { json } from "./client";

/** A kind is one resource in one version, by which its objects are asked for. */
export interface Kind {
  group: string;
  version: string;
  resource: string; // the plural
  kind: string;
  singular: string;
  namespaced: boolean;
  verbs: string[];
  shortNames: string[];
  categories: string[];
  versions: string[]; // all in which it's served, the preferred one first
  custom: boolean; // from a CustomResourceDefinition, as far as its group tells
}

interface Discovery {
  items: {
    metadata: { name?: string };
    versions: {
      version: string;
      resources?: {
        resource: string; singularResource: string; scope: string; verbs: string[]; shortNames?: string[]; categories?: string[];
        responseKind?: { group: string; version: string; kind: string };
      }[];
    }[];
  }[];
}

/** All kinds, in the order of groups and names; undefined until they're known. */
export const kinds = signal<Kind[] | undefined>(undefined);

/** Names of kinds that came while the page was open. */
export const fresh = signal<ReadonlySet<string>>(new Set());

declare global {
  /** What is asked for discovery, and the answers that early.ts has asked for. */
  var discovery: { paths: string[]; accept: string; answers?: Promise<Response>[] };
}

/** Asks which kinds there are. */
export async function discover(): Promise<void> {
  const { paths, accept, answers } = discovery;
  discovery.answers = undefined; // they're good for once
  const [core, groups] = await Promise.all(paths.map((path, i) => json<Discovery>(path, { accept, answer: answers?.[i] })));
  const found = [...core.items, ...groups.items].flatMap((group) => kindsOf(group));
  found.sort((a, b) => a.group < b.group ? -1 : a.group > b.group ? 1 : a.resource < b.resource ? -1 : 1);
  const before = kinds.peek();
  if (before) {
    const known = new Set(before.map(nameOf));
    const added = found.map(nameOf).filter((name) => !known.has(name));
    if (added.length > 0) fresh.value = new Set([...fresh.peek(), ...added]);
    if (JSON.stringify(before) === JSON.stringify(found)) return; // nothing to draw
  }
  kinds.value = found;
}

function kindsOf(group: Discovery["items"][number]): Kind[] {
  const byResource = new Map<string, Kind>();
  for (const v of group.versions) {
    for (const r of v.resources ?? []) {
      const known = byResource.get(r.resource);
      if (known) {
        known.versions.push(v.version);
        continue;
      }
      const name = group.metadata.name ?? "";
      byResource.set(r.resource, {
        group: name, version: v.version, resource: r.resource, kind: r.responseKind?.kind ?? r.resource, singular: r.singularResource,
        namespaced: r.scope === "Namespaced", verbs: r.verbs, shortNames: r.shortNames ?? [], categories: r.categories ?? [],
        versions: [v.version], custom: name.includes(".") && !name.endsWith(".k8s.io"),
      });
    }
  }
  return [...byResource.values()];
}

/** The name by which clients know a kind: "configmaps", "widgets.example.com". */
export function nameOf(k: { group: string; resource: string }): string {
  return k.group ? `${k.resource}.${k.group}` : k.resource;
}

/** A kind in a link: "core/v1/configmaps". */
export function linkOf(k: { group: string; version: string; resource: string }): string {
  return `${k.group || "core"}/${k.version}/${k.resource}`;
}

/** The kind of a link in the version that the link says, or undefined if there is none. */
export function kindOf(link: string): Kind | undefined {
  const [group, version, resource] = link.split("/");
  const found = kinds.value?.find((k) => (k.group || "core") === group && k.resource === resource);
  return found && found.versions.includes(version) ? { ...found, version } : found;
}

/** The kind with that apiVersion and kind, as owner references and events name it. */
export function kindNamed(apiVersion: string, kind: string): Kind | undefined {
  const [group, version] = apiVersion.includes("/") ? apiVersion.split("/") : ["", apiVersion];
  const found = kinds.value?.find((k) => k.group === group && k.kind === kind && k.verbs.includes("get"));
  return found && found.versions.includes(version) ? { ...found, version } : found;
}

/** The path of a kind's objects, or of one of them. */
export function pathOf(k: { group: string; version: string; resource: string; namespaced: boolean }, namespace?: string, name?: string): string {
  const root = k.group ? `/apis/${enc(k.group)}/${enc(k.version)}` : `/api/${enc(k.version)}`;
  const inside = k.namespaced && namespace ? `/namespaces/${enc(namespace)}` : "";
  return `${root}${inside}/${enc(k.resource)}${name ? `/${enc(name)}` : ""}`;
}

const enc = encodeURIComponent;
