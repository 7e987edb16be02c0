// Owners and dependents. The API has no question for dependents, so the metadata of all that the user may list is read, within a bound.
import { json } from "../api/client";
import { kindNamed, kinds, nameOf, pathOf, type Kind } from "../api/discovery";
import type { Metadata, Obj } from "./live";

export interface Relative { kind: Kind; metadata: Metadata }

export interface Family {
  owners: Owner[];
  dependents: Map<string, Relative[]>; // by their owners' uids
  unread: string[]; // kinds of which some or all couldn't be read
}

export interface Owner { relative?: Relative; kind: string; name: string; missing: boolean; owners: Owner[]; uid: string }

/** How many objects of one kind are looked at, and in how many requests. */
const page = 500, mostPages = 10;

/** How far up owners are followed. */
const mostLevels = 6;

const accept = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";
const acceptOne = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

/** Reads who owns an object and who depends on it, and on those. */
export async function familyOf(object: Obj): Promise<Family> {
  const unread: string[] = [];
  const dependents = new Map<string, Relative[]>();
  const { namespace } = object.metadata;
  await Promise.all([...(kinds.peek() ?? [])].filter((k) => k.verbs.includes("list") && (k.namespaced || !namespace) && k.resource !== "events").map(async (kind) => {
    try {
      if (!await each(kind, namespace, (metadata) => {
        for (const o of metadata.ownerReferences ?? []) {
          const list = dependents.get(o.uid) ?? [];
          list.push({ kind, metadata });
          dependents.set(o.uid, list);
        }
      })) unread.push(nameOf(kind));
    } catch {
      unread.push(nameOf(kind));
    }
  }));
  return { owners: await ownersOf(object.metadata, 0), dependents, unread };
}

/** Calls f with the metadata of a kind's objects, and reports whether that were all. */
async function each(kind: Kind, namespace: string | undefined, f: (m: Metadata) => void): Promise<boolean> {
  let go = "";
  for (let i = 0; i < mostPages; i++) {
    const list = await json<{ metadata: { continue?: string }; items: { metadata: Metadata }[] | null }>(
      `${pathOf(kind, namespace)}?pretty=false&limit=${page}${go && `&continue=${encodeURIComponent(go)}`}`, { accept });
    for (const item of list.items ?? []) f(item.metadata);
    go = list.metadata.continue ?? "";
    if (!go) return true;
  }
  return false;
}

async function ownersOf(m: Metadata, level: number): Promise<Owner[]> {
  if (level >= mostLevels) return [];
  return Promise.all((m.ownerReferences ?? []).map(async (o): Promise<Owner> => {
    const kind = kindNamed(o.apiVersion, o.kind);
    const owner: Owner = { kind: o.kind, name: o.name, uid: o.uid, missing: true, owners: [] };
    if (!kind) return owner;
    try {
      const found = await json<{ metadata: Metadata }>(pathOf(kind, m.namespace, o.name), { accept: acceptOne });
      if (found.metadata.uid !== o.uid) return owner; // another one of that name
      return { ...owner, missing: false, relative: { kind, metadata: found.metadata }, owners: await ownersOf(found.metadata, level + 1) };
    } catch {
      return owner;
    }
  }));
}

/** All who depend on an object, and on those, each once. */
export function allDependents(family: Family, uid: string): Relative[] {
  const found: Relative[] = [], seen = new Set([uid]);
  for (const queue = [uid]; queue.length > 0;) {
    for (const d of family.dependents.get(queue.shift()!) ?? []) {
      if (seen.has(d.metadata.uid)) continue;
      seen.add(d.metadata.uid);
      found.push(d);
      queue.push(d.metadata.uid);
    }
  }
  return found;
}
