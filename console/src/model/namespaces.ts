// The namespaces there are, as far as the user may list them.
import { signal } from "@preact/signals";
import { json } from "../api/client";

const names = signal<string[]>([]);

/** Asks for the namespaces. Who may not list them has none to choose from. */
async function look(): Promise<void> {
  try {
    const list = await json<{ items: { metadata: { name: string } }[] | null }>("/api/v1/namespaces?limit=2000",
      { accept: "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io" });
    names.value = (list.items ?? []).map((n) => n.metadata.name);
  } catch { /* then one is typed */ }
}

export const namespaces = { names, look };
