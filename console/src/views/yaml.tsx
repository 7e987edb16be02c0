// An object as YAML: read while it changes, or edited, checked, compared and stored.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, messageOf, Refusal, token } from "../api/client";
import { pathOf, type Kind } from "../api/discovery";
import { loadEditor, type Editor } from "../api/editor";
import { schemasOf } from "../api/openapi";
import { suggest } from "../model/suggest";
import { bare, type Live, type Obj } from "../model/live";
import { problemsOf } from "../model/problems";
import { announce } from "../ui/announce";
import { DiffView } from "./diff";

interface Props { kind: Kind; live: Live; object: Obj; editing: boolean; setEditing(on: boolean): void; mayReplace: boolean; mayApply: boolean }

type Mode = "replace" | "apply" | "force";

const modes: [Mode, string][] = [["replace", "Replace (PUT)"], ["apply", "Server-side apply"], ["force", "Server-side apply, by force"]];

/** What was being written when its page was left, by the object's path, and how many of them are kept, in memory alone. */
const drafts = new Map<string, { text: string; base: string }>();
const mostDrafts = 20;
let whose = "";

/** The drafts of this user: another one's are forgotten. */
function ownDrafts(): typeof drafts {
  if (whose !== token.peek()) drafts.clear();
  whose = token.peek();
  return drafts;
}

function keepDraft(path: string, draft: { text: string; base: string }): void {
  ownDrafts().set(path, draft);
  if (drafts.size > mostDrafts) drafts.delete(drafts.keys().next().value!);
}

export function YamlTab(p: Props) {
  const { kind, live, object, editing } = p;
  const at = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const tools = useRef<Awaited<ReturnType<typeof loadEditor>> | null>(null);
  const path = pathOf(kind, object.metadata.namespace, object.metadata.name);
  const latest = useRef(object);
  latest.current = object;
  const actions = useRef({ apply: () => {}, leave: () => {} });
  const begun = useRef(""), open = useRef(""); // the text before it was edited, and its version
  const [ready, setReady] = useState(false);
  const allowed = modes.filter(([name]) => name === "replace" ? p.mayReplace : p.mayApply);
  const [chosen, setMode] = useState<Mode>("replace");
  const mode = allowed.some(([name]) => name === chosen) ? chosen : allowed[0]?.[0] ?? chosen;
  const [said, setSaid] = useState<{ text: string; good: boolean }>();
  const [compared, setCompared] = useState<[string, string]>();
  const [base, setBase] = useState("");

  useEffect(() => {
    let closed = false;
    void Promise.all([loadEditor(), schemasOf(kind).catch(() => undefined)]).then(([module, schemas]) => {
      if (closed) return;
      tools.current = module;
      editor.current = new module.Editor({
        parent: at.current!, label: `${kind.kind} as YAML`, text: module.toYaml(bare(latest.current)), editable: false,
        complete: (path, of) => schemas ? suggest(schemas, kind, path, of) : [],
        apply: () => actions.current.apply(), leave: () => actions.current.leave(),
      });
      setReady(true);
    });
    return () => {
      closed = true;
      const text = editor.current?.text();
      if (open.current && text !== undefined && text !== begun.current) keepDraft(path, { text, base: open.current });
      editor.current?.close();
      editor.current = null;
    };
  }, []);

  useEffect(() => {
    if (!ready || editing) return;
    editor.current!.setText(tools.current!.toYaml(bare(object)));
    editor.current!.highlight([...live.changed].map((path) => JSON.parse(path)));
  }, [ready, editing, object]);

  useEffect(() => {
    if (!ready) return;
    setSaid(undefined);
    open.current = "";
    if (editing) {
      editor.current!.highlight([]);
      begun.current = editor.current!.text();
      const draft = ownDrafts().get(path);
      open.current = draft?.base ?? object.metadata.resourceVersion;
      setBase(open.current);
      if (draft) {
        drafts.delete(path);
        editor.current!.setText(draft.text);
        setSaid({ text: "This is what you were writing when you left it.", good: true });
      }
    }
    setCompared(undefined);
    editor.current!.show([]);
    editor.current!.setEditable(editing);
  }, [ready, editing]);

  useEffect(() => {
    if (!editing) return;
    const ask = (e: BeforeUnloadEvent) => { if (editor.current && editor.current.text() !== begun.current) e.preventDefault(); }; // the browser asks whether to leave
    addEventListener("beforeunload", ask);
    return () => removeEventListener("beforeunload", ask);
  }, [editing]);

  const send = async (dry: boolean): Promise<Obj | undefined> => {
    const text = editor.current!.text();
    const parsed = tools.current!.fromYaml(text);
    editor.current!.show(parsed.problems);
    if (parsed.problems.length > 0) {
      setSaid({ text: `This isn't YAML: ${parsed.problems[0].message}`, good: false });
      return undefined;
    }
    setCompared(undefined);
    try {
      const answer = await store(kind, object, text, mode, dry);
      setSaid(undefined);
      return answer;
    } catch (error) {
      if (error instanceof Refusal) editor.current?.show(problemsOf(error.status));
      setSaid({ text: messageOf(error), good: false });
      return undefined;
    }
  };
  const apply = async () => {
    if (!editing || !await send(false)) return;
    announce(`${object.metadata.name} is stored`);
    p.setEditing(false);
  };
  const check = async () => { if (await send(true)) setSaid({ text: "The server would take this.", good: true }); };
  const compare = async () => {
    const answer = await send(true);
    if (answer) setCompared([tools.current!.toYaml(withoutVersion(object)), tools.current!.toYaml(withoutVersion(answer))]);
  };
  actions.current = { apply, leave: () => { if (editing) document.getElementById("apply")?.focus(); } };

  return (
    <div class="yaml">
      {editing && (
        <div class="tools" role="toolbar" aria-label="What to do with the text">
          <button type="button" class="main" id="apply" onClick={apply} aria-keyshortcuts="Control+Enter">Apply</button>
          <button type="button" onClick={check}>Dry run</button>
          <button type="button" onClick={compare}>Difference</button>
          <select aria-label="How it's stored" value={mode} onChange={(e) => setMode(e.currentTarget.value as Mode)}>{allowed.map(([name, title]) => <option key={name} value={name}>{title}</option>)}</select>
          <button type="button" onClick={() => p.setEditing(false)}>Cancel</button>
          {base && base !== object.metadata.resourceVersion && <em class="tag warn" role="status">It has changed since: version {object.metadata.resourceVersion}</em>}
        </div>
      )}
      {said && <p class={said.good ? "note good" : "note bad"} role={said.good ? "status" : "alert"}>{said.text}</p>}
      {compared && <DiffView before={compared[0]} after={compared[1]} title="What would be stored differs like this" none="Nothing would change." onClose={() => setCompared(undefined)} />}
      {!ready && <p class="empty" role="status">Reading…</p>}
      <div class={editing ? "editor on" : "editor"} ref={at} />
    </div>
  );
}

/** Stores an object as a text says, or asks what would be stored. It returns the server's answer. */
async function store(kind: Kind, object: Obj, text: string, mode: Mode, dry: boolean): Promise<Obj> {
  const q = new URLSearchParams({ fieldManager: "console", fieldValidation: "Strict" });
  if (dry) q.set("dryRun", "All");
  if (mode === "force") q.set("force", "true");
  const put = mode === "replace";
  const answer = await call(`${pathOf(kind, object.metadata.namespace, object.metadata.name)}?${q}`, {
    method: put ? "PUT" : "PATCH", type: put ? "application/yaml" : "application/apply-patch+yaml", body: text,
  });
  return answer.json() as Promise<Obj>;
}

/** What people compare: not what each write changes. */
function withoutVersion(object: Obj): Obj {
  const { resourceVersion, ...metadata } = bare(object).metadata;
  return { ...object, metadata } as Obj;
}
