// One object as it is now, and what of it changed last.
import { useEffect, useState } from "preact/hooks";
import { pathOf, type Kind } from "../api/discovery";
import { json, Refusal } from "../api/client";
import { poll, watch, type Health } from "../api/watch";

export type Obj = { apiVersion: string; kind: string; metadata: Metadata; [field: string]: any };

export interface Metadata {
  name: string; namespace?: string; uid: string; resourceVersion: string; creationTimestamp: string; deletionTimestamp?: string;
  finalizers?: string[]; labels?: Record<string, string>; annotations?: Record<string, string>; managedFields?: unknown[];
  ownerReferences?: { apiVersion: string; kind: string; name: string; uid: string; controller?: boolean; blockOwnerDeletion?: boolean }[];
}

export interface Live { object?: Obj; changed: ReadonlySet<string>; at: number; gone: boolean; known: boolean; health: Health }

const nothing: Live = { changed: new Set(), at: 0, gone: false, known: false, health: { state: "connecting" } };

/** Follows an object, which may not be there yet, or no more. */
export function useLive(kind: Kind | undefined, namespace: string, name: string): Live {
  const [live, set] = useState<Live>(nothing);
  useEffect(() => {
    set(nothing);
    if (!kind) return;
    let now = nothing, seen = false;
    const tell = (changes: Partial<Live>) => set(now = { ...now, ...changes });
    const take = (object: Obj) => {
      const same = !!now.object && now.object.metadata.uid === object.metadata.uid;
      const changed = same ? differences(now.object, object) : new Set<string>();
      tell({ object, gone: !seen, known: true, changed, at: same ? performance.now() : 0 });
    };
    if (!kind.verbs.includes("watch")) {
      return poll(async (signal) => {
        try {
          const object = await json<Obj>(pathOf(kind, namespace, name), { signal });
          seen = true;
          if (JSON.stringify(object) === JSON.stringify(now.object)) tell({ known: true, gone: false });
          else take(object);
        } catch (error) {
          if (!(error instanceof Refusal && error.code === 404)) throw error;
          tell({ known: true, gone: true });
        }
      }, (health) => tell({ health }));
    }
    return watch({
      url: `${pathOf(kind, namespace)}?fieldSelector=${encodeURIComponent(`metadata.name=${name}`)}`, accept: "application/json",
      begin: () => { seen = false; },
      synced: () => tell({ known: true, gone: !seen }),
      health: (health) => tell({ health }),
      event: (e) => {
        const object = e.object as Obj;
        seen = e.type !== "DELETED";
        if (now.object?.metadata.resourceVersion === object.metadata.resourceVersion && seen) return tell({ gone: false });
        take(object);
      },
    });
  }, [kind?.group, kind?.version, kind?.resource, namespace, name]);
  return live;
}

/** The paths, as JSON, at which two values differ: those of the second, or of what holds a thing that it lacks. */
export function differences(a: unknown, b: unknown, path: (string | number)[] = [], found = new Set<string>()): Set<string> {
  if (path[0] === "metadata" && path[1] === "managedFields") return found;
  if (a === b) return found;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) {
    found.add(JSON.stringify(path));
    return found;
  }
  const was = a as Record<string, unknown>, is = b as Record<string, unknown>;
  const list = Array.isArray(b);
  for (const name of Object.keys(is)) differences(was[name], is[name], [...path, list ? Number(name) : name], found);
  if (Object.keys(was).some((name) => !(name in is))) found.add(JSON.stringify(path));
  return found;
}

/** An object as it's edited and compared: without what only the server writes for itself. */
export function bare(object: Obj): Obj {
  const { managedFields, ...metadata } = object.metadata;
  return { ...object, metadata } as Obj;
}
