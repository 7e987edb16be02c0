// What an object was: its versions as a line that one drags, and what each of them changed.
import { useEffect, useRef, useState } from "preact/hooks";
import { json, messageOf, Refusal } from "../api/client";
import { pathOf, type Kind } from "../api/discovery";
import { loadEditor } from "../api/editor";
import { age } from "../model/age";
import { bare, type Obj } from "../model/live";
import { replace, route, withQuery } from "../route";
import { DiffView } from "./diff";

interface Version { resourceVersion: string; time?: string; within?: string; change: string; manager?: string; user?: string; unreadable?: string }

interface History { metadata: { continue?: string }; items: Version[] }

/** How many versions are on the line, the newest. */
const most = 200;

export function HistoryTab({ kind, object }: { kind: Kind; object: Obj }) {
  const { namespace, name, resourceVersion } = object.metadata;
  const path = pathOf(kind, namespace ?? "", name);
  const [versions, setVersions] = useState<Version[]>([]); // oldest first
  const [more, setMore] = useState(false);
  const [refusal, setRefusal] = useState("");
  const chosen = route.value.query.get("version"); // none for the newest
  useEffect(() => {
    const asked = new AbortController();
    json<History>(`${path}?history=true&limit=${most}`, { signal: asked.signal }).then((h) => {
      setVersions(h.items.reverse());
      setMore(!!h.metadata.continue);
      setRefusal("");
    }, (e) => { if (!asked.signal.aborted) setRefusal(messageOf(e)); });
    return () => asked.abort();
  }, [path, resourceVersion]);
  if (versions.length === 0) return <p class="empty" role="status">{refusal || "Reading…"}</p>;
  const last = versions.length - 1;
  const found = versions.findIndex((v) => v.resourceVersion === chosen);
  const at = found < 0 ? last : found;
  const v = versions[at];
  return (
    <section class="history" aria-label="History">
      <input type="range" aria-label="Version" min={0} max={last} value={at} aria-valuetext={`version ${v.resourceVersion}, ${v.change}`} disabled={last === 0}
        onInput={(e) => { const to = Number(e.currentTarget.value); replace(withQuery({ version: to === last ? "" : versions[to].resourceVersion })); }} />
      <p role="status"><b>{v.change}</b> {when(v)}{by(v)} · version {v.resourceVersion}, {at + 1} of {versions.length}{more && at === 0 ? ": older ones aren't on the line" : ""}</p>
      {v.unreadable ? <p class="empty">It can't be read: {v.unreadable}</p> : <Changes path={path} before={at > 0 ? versions[at - 1] : undefined} version={v} />}
    </section>
  );
}

function Changes({ path, before, version }: { path: string; before?: Version; version: Version }) {
  const texts = useRef(new Map<string, string>());
  const [shown, setShown] = useState<[string, string]>();
  const [refusal, setRefusal] = useState("");
  useEffect(() => {
    const asked = new AbortController();
    const textOf = async (v: Version | undefined): Promise<string> => {
      if (!v || v.change === "deleted") return "";
      const known = texts.current.get(v.resourceVersion);
      if (known !== undefined) return known;
      const [editor, was] = await Promise.all([loadEditor(), json<Obj>(`${path}?resourceVersion=${v.resourceVersion}&resourceVersionMatch=Exact`, { signal: asked.signal })]);
      const { resourceVersion, ...metadata } = bare(was).metadata; // each write changes it
      const text = editor.toYaml({ ...was, metadata });
      texts.current.set(v.resourceVersion, text);
      return text;
    };
    Promise.all([textOf(version.change === "created" ? undefined : before), textOf(version)]).then((both) => {
      if (asked.signal.aborted) return;
      setShown(both as [string, string]);
      setRefusal("");
    }, (e) => { if (!asked.signal.aborted) setRefusal(e instanceof Refusal && e.code === 410 ? "The server doesn't have this version any more." : messageOf(e)); });
    return () => asked.abort();
  }, [path, before?.resourceVersion, version.resourceVersion]);
  if (refusal) return <p class="empty" role="status">{refusal}</p>;
  if (!shown) return <p class="empty" role="status">Reading…</p>;
  return <DiffView before={shown[0]} after={shown[1]} title="What it changed" none="Nothing that is shown here has changed." />;
}

function when(v: Version): string {
  return v.time ? `${age(v.time)} ago, at ${v.time}` : "at a time that isn't known";
}

function by(v: Version): string {
  if (v.user) return ` by ${v.user}${v.manager ? ` (${v.manager})` : ""}`;
  return v.manager ? ` by ${v.manager}` : "";
}
