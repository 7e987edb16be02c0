// How many objects each kind has.
import { signal } from "@preact/signals";
import { json, Refusal } from "../api/client";
import { kinds, linkOf, pathOf, type Kind } from "../api/discovery";

/** How often counts are asked for, in ms. */
const interval = 3000;

export interface Count { n: number; moved: number } // moved is when it changed last, by performance.now(); 0: not yet

/** Counts by the kinds' links; -1 where the user may not list. */
export const counts = signal<ReadonlyMap<string, Count>>(new Map());

/** Keeps the counts, until the function is called that it returns. */
export function count(): () => void {
  let stopped = false, timer = 0;
  const round = async () => {
    if (document.visibilityState === "visible") await look(() => stopped);
    if (!stopped) timer = window.setTimeout(round, interval);
  };
  void round();
  return () => { stopped = true; clearTimeout(timer); };
}

async function look(stopped: () => boolean): Promise<void> {
  const found = new Map(counts.peek());
  await Promise.all((kinds.peek() ?? []).filter((k) => k.verbs.includes("list")).map(async (k) => {
    const n = await countOf(k);
    const was = found.get(linkOf(k));
    if (n !== undefined && was?.n !== n) found.set(linkOf(k), { n, moved: was ? performance.now() : 0 });
  }));
  if (!stopped()) counts.value = found;
}

async function countOf(k: Kind): Promise<number | undefined> {
  try {
    const list = await json<{ metadata: { remainingItemCount?: number }; items: unknown[] | null }>(`${pathOf(k)}?limit=1`,
      { accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json" });
    return (list.items?.length ?? 0) + (list.metadata.remainingItemCount ?? 0);
  } catch (error) {
    return error instanceof Refusal && error.code === 403 ? -1 : undefined;
  }
}
