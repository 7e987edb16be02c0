// The command palette: everything by its name.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { kinds, linkOf, nameOf, type Kind } from "../api/discovery";
import { creatable } from "../api/rights";
import { go, route } from "../route";
import { formLink, namespaceOn, paneLink } from "../model/panes";
import { Dialog } from "./dialog";
import { openHelp } from "./help";
import { toggleShade } from "./shade";

export interface Command { title: string; hint?: string; run: () => void }

const open = signal(false);

/** What the view on screen adds to the palette. */
export const viewCommands = signal<Command[]>([]);

export function openPalette(): void { open.value = true; }

const fixed: Command[] = [
  { title: "Kinds", hint: "view", run: () => go("#/kinds") },
  { title: "Objects", hint: "view", run: () => go("#/objects") },
  { title: "Definitions", hint: "view", run: () => go("#/definitions") },
  { title: "Traffic", hint: "view", run: () => go("#/traffic") },
  { title: "Who am I", hint: "view", run: () => go("#/me") },
  { title: "Keys", hint: "help", run: openHelp },
  { title: "Light or dark", hint: "action", run: toggleShade },
];

/** How many are listed; more letters find the others. */
const most = 40;

/** All that there is, of new objects those that may be made in the namespace on screen. */
function all(mayCreate: (k: Kind) => boolean): Command[] {
  const namespace = namespaceOn(route.peek());
  const ofKinds = (kinds.value ?? []).filter((k) => k.verbs.includes("list")).flatMap((k): Command[] => [
    { title: nameOf(k), hint: `objects ${k.kind} ${k.shortNames.join(" ")}`, run: () => go(paneLink([{ kind: linkOf(k) }])) },
    { title: `Schema of ${k.kind}`, hint: nameOf(k), run: () => go(`#/definitions/${linkOf(k)}`) },
    ...(mayCreate(k) ? [{ title: `New ${k.kind}`, hint: nameOf(k), run: () => go(formLink(linkOf(k), k.namespaced ? namespace : "")) }] : []),
  ]);
  return [...viewCommands.value, ...fixed, ...ofKinds];
}

/** How well a command fits what was typed: 0 is not at all. Letters in order count, those at the begin of words more. */
export function fit(text: string, words: string): number {
  const t = text.toLowerCase(), w = words.toLowerCase();
  const at = t.indexOf(w);
  if (at >= 0) return 1000 - at - t.length / 100;
  let from = 0, score = 1;
  for (const c of w.replaceAll(" ", "")) {
    const next = t.indexOf(c, from);
    if (next < 0) return 0;
    score += next === from ? 2 : next > 0 && !/[a-z0-9]/.test(t[next - 1]) ? 3 : 0;
    from = next + 1;
  }
  return score;
}

export function Palette() { return open.value ? <Opened /> : null; }

function Opened() {
  const [words, setWords] = useState("");
  const [chosen, setChosen] = useState(0);
  const list = useRef<HTMLUListElement>(null);
  const [mayCreate, setMayCreate] = useState(() => (_: Kind) => false); // until it's known
  useEffect(() => { void creatable(namespaceOn(route.peek())).then((f) => setMayCreate(() => f)); }, []);
  const commands = useMemo(() => all(mayCreate), [mayCreate]);
  const found = useMemo(() => words.trim() === "" ? commands.slice(0, most)
    : commands.map((c) => ({ c, score: Math.max(fit(c.title, words) * 2, fit(`${c.title} ${c.hint ?? ""}`, words)) })).filter((f) => f.score > 0)
      .sort((a, b) => b.score - a.score).slice(0, most).map((f) => f.c), [words, commands]);
  const close = () => { open.value = false; };
  const run = (c: Command | undefined) => { close(); if (c) setTimeout(c.run); };
  const choose = (i: number) => {
    const to = (i + found.length) % Math.max(1, found.length);
    setChosen(to);
    list.current?.children[to]?.scrollIntoView({ block: "nearest" });
  };
  return (
    <Dialog label="Go to" class="palette" onClose={close}>
      <input type="search" role="combobox" list={undefined} aria-expanded="true" aria-controls="commands" aria-activedescendant={`command-${chosen}`} aria-label="Kind, view or action"
        placeholder="Kind, view or action" autoFocus autocomplete="off" spellcheck={false} value={words}
        onInput={(e) => { setWords(e.currentTarget.value); setChosen(0); }}
        onKeyDown={(e) => {
          if (e.key === "ArrowDown") choose(chosen + 1);
          else if (e.key === "ArrowUp") choose(chosen - 1);
          else if (e.key === "Enter") run(found[chosen]);
          else if (e.key === "Escape") close();
          else return;
          e.preventDefault();
        }} />
      <ul id="commands" role="listbox" aria-label="What there is" ref={list}>
        {found.map((c, i) => (
          <li key={c.title + c.hint} id={`command-${i}`} role="option" aria-selected={i === chosen} onClick={() => run(c)} onMouseMove={() => setChosen(i)}>
            <span>{c.title}</span><small>{c.hint}</small>
          </li>
        ))}
        {found.length === 0 && <li class="quiet">Nothing has that name.</li>}
      </ul>
    </Dialog>
  );
}
