// The editor of YAML, and what is made of YAML and into it. It's a script of its own: most visits don't need it.
//
// CodeMirror makes stylesheets of its own, which the page's policy forbids in the document. In a shadow root it adopts constructed
// ones, which need no exception.
import { EditorState, StateEffect, StateField, Compartment } from "@codemirror/state";
import { Decoration, EditorView, keymap, lineNumbers, highlightActiveLine, drawSelection, type DecorationSet } from "@codemirror/view";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { foldGutter, foldKeymap, HighlightStyle, indentOnInput, syntaxHighlighting, bracketMatching } from "@codemirror/language";
import { autocompletion, completionKeymap, startCompletion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { lintGutter, setDiagnostics, type Diagnostic } from "@codemirror/lint";
import { searchKeymap, highlightSelectionMatches } from "@codemirror/search";
import { yaml } from "@codemirror/lang-yaml";
import { tags } from "@lezer/highlight";
import { parseDocument, stringify, isMap, isScalar, isSeq, type Node, type YAMLSeq } from "yaml";
import { placeAt } from "./place";

export interface Suggestion { label: string; detail?: string; info?: string; text?: string }

/** What is wrong: with a field, or at a part of the text. */
export interface Problem { path?: (string | number)[]; at?: [number, number]; message: string }

export interface EditorOptions {
  parent: HTMLElement;
  label: string;
  text: string;
  editable: boolean;
  complete(path: string[], of: "name" | "value"): Suggestion[];
  apply(): void;
  leave(): void;
}

/** A value as YAML, as people write it. */
export function toYaml(value: unknown): string { return stringify(value, { lineWidth: 0, aliasDuplicateObjects: false }); }

/** What a text of YAML says, or why it says nothing. */
export function fromYaml(text: string): { value?: any; problems: Problem[] } {
  const doc = parseDocument(text, { maxAliasCount: 0 } as object);
  if (doc.errors.length > 0) return { problems: doc.errors.map((e) => ({ at: [e.pos[0], e.pos[1]], message: e.message.split("\n")[0] })) };
  try {
    return { value: doc.toJS({ maxAliasCount: 0 }), problems: [] };
  } catch (error) {
    return { problems: [{ message: String(error) }] };
  }
}

/** The element of a list that a path names: by its index, or by its keys as in name="a",protocol="TCP". */
function elementOf(list: YAMLSeq, name: string | number): unknown {
  if (typeof name === "number") return list.items[name];
  const keys = [...name.matchAll(/([\w.-]+)=("(?:[^"\\]|\\.)*"|[^,]+)/g)];
  const fits = (i: unknown, [, key, value]: string[]) => isMap(i) && i.has(key) ? String(i.get(key)) === value.replace(/^"(.*)"$/, "$1") : undefined;
  return list.items.find((i) => keys.some((k) => fits(i, k)) && keys.every((k) => fits(i, k) !== false)); // what has a default needn't be in the text
}

const mark = StateEffect.define<DecorationSet>();

const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(set, tr) {
    set = set.map(tr.changes);
    for (const e of tr.effects) if (e.is(mark)) set = e.value;
    return set;
  },
  provide: (f) => EditorView.decorations.from(f),
});

const changedLine = Decoration.line({ class: "changed" });

export class Editor {
  private view: EditorView;
  private editable = new Compartment();

  constructor(private o: EditorOptions) {
    const root = o.parent.shadowRoot ?? o.parent.attachShadow({ mode: "open" });
    const holder = document.createElement("div");
    holder.style.height = "100%";
    root.replaceChildren(holder);
    this.view = new EditorView({
      root, parent: holder,
      state: EditorState.create({
        doc: o.text,
        extensions: [
          theme, syntaxHighlighting(colours), lineNumbers(), foldGutter(), lintGutter(), history(), drawSelection(), indentOnInput(), bracketMatching(),
          highlightActiveLine(), highlightSelectionMatches(), yaml(), marks,
          autocompletion({ override: [(c) => this.complete(c)], activateOnTyping: true }),
          this.editable.of(writable(o.editable)),
          EditorView.contentAttributes.of({ "aria-label": o.label, spellcheck: "false" }),
          keymap.of([
            { key: "Mod-Enter", run: () => { o.apply(); return true; } },
            { key: "Ctrl-Space", run: startCompletion },
            ...completionKeymap, ...searchKeymap, ...foldKeymap, ...historyKeymap, ...defaultKeymap,
            { key: "Escape", run: () => { o.leave(); return true; } },
          ]),
        ],
      }),
    });
  }

  text(): string { return this.view.state.doc.toString(); }

  setText(text: string): void {
    if (text === this.text()) return;
    const top = this.view.scrollDOM.scrollTop;
    this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
    this.view.scrollDOM.scrollTop = top;
  }

  setEditable(on: boolean): void {
    this.view.dispatch({ effects: this.editable.reconfigure(writable(on)) });
    if (on) this.view.focus();
  }

  focus(): void { this.view.focus(); }

  /** Shows which lines changed, by paths. */
  highlight(paths: (string | number)[][]): void {
    const lines = new Set(paths.map((p) => this.range(p)).filter((r) => r !== undefined).map((r) => this.view.state.doc.lineAt(r.from).from));
    this.view.dispatch({ effects: mark.of(Decoration.set([...lines].sort((a, b) => a - b).map((at) => changedLine.range(at)))) });
  }

  /** Shows refusals at their lines; those without a place are at the first. */
  show(problems: Problem[]): void {
    const found: Diagnostic[] = problems.map((p) => ({ ...this.placeOf(p), severity: "error", message: p.message }));
    this.view.dispatch(setDiagnostics(this.view.state, found));
    if (found.length > 0) this.view.dispatch({ effects: EditorView.scrollIntoView(found[0].from, { y: "center" }) });
  }

  private placeOf(p: Problem): { from: number; to: number } {
    if (p.at) {
      const end = this.view.state.doc.length, from = Math.min(p.at[0], end);
      return { from, to: Math.min(Math.max(p.at[1], from), this.view.state.doc.lineAt(from).to) };
    }
    return p.path && this.range(p.path) || { from: 0, to: this.view.state.doc.line(1).to };
  }

  /** Where a field is in the text, or what of its path there is. */
  private range(path: (string | number)[]): { from: number; to: number } | undefined {
    let node: unknown = parseDocument(this.text(), { keepSourceTokens: false }).contents;
    let found: { from: number; to: number } | undefined;
    const note = (range: readonly number[] | null | undefined) => { if (range) found = { from: range[0], to: Math.max(range[0], Math.min(range[1], this.view.state.doc.lineAt(range[0]).to)) }; };
    for (const name of path) {
      if (isSeq(node)) {
        const element = elementOf(node, name) ?? (node.items.length === 1 ? node.items[0] : undefined); // some refusals don't say which
        if (!element) break;
        node = element;
        note((element as Node).range);
        if (typeof name === "number" || name.includes("=")) continue;
      }
      const pair = isMap(node) ? node.items.find((i) => String(isScalar(i.key) ? i.key.value : i.key) === String(name)) : undefined;
      if (!pair) break;
      note((pair.key as Node).range);
      node = pair.value;
    }
    return found;
  }

  private complete(c: CompletionContext): CompletionResult | null {
    const place = placeAt(c.state.doc.toString(), c.pos);
    if (!place || !c.explicit && place.typed === "") return null;
    const found = this.o.complete(place.path, place.of);
    if (found.length === 0) return null;
    return {
      from: c.pos - place.typed.length, validFor: /^[\w.-]*$/,
      options: found.map((s) => ({ label: s.label, detail: s.detail, info: s.info, apply: s.text ?? (place.of === "name" ? `${s.label}: ` : s.label), type: place.of === "name" ? "property" : "enum" })),
    };
  }

  close(): void { this.view.destroy(); }
}

const writable = (on: boolean) => [EditorState.readOnly.of(!on), EditorView.editable.of(on)];

const colours = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: [tags.string, tags.content], color: "var(--text)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--good)" },
  { tag: tags.comment, color: "var(--quiet)", fontStyle: "italic" },
  { tag: tags.punctuation, color: "var(--quiet)" },
]);

const theme = EditorView.theme({
  "&": { fontSize: "12.5px", backgroundColor: "var(--paper)", color: "var(--text)", height: "100%" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.5" },
  ".cm-gutters": { backgroundColor: "var(--paper)", color: "var(--quiet)", border: "0", opacity: ".8" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  ".cm-activeLine, .cm-activeLineGutter": { backgroundColor: "color-mix(in srgb, var(--accent) 7%, transparent)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": { backgroundColor: "color-mix(in srgb, var(--accent) 26%, transparent)" },
  ".changed": { backgroundColor: "var(--glow)" },
  ".cm-tooltip": { backgroundColor: "var(--raised)", color: "var(--text)", border: "1px solid var(--line-strong)", borderRadius: "6px", overflow: "hidden" },
  ".cm-tooltip-autocomplete > ul > li[aria-selected]": { backgroundColor: "var(--accent-ground)", color: "var(--text)" },
  ".cm-completionInfo": { maxWidth: "360px", padding: "6px 10px", fontFamily: "var(--sans)" },
  ".cm-diagnostic-error": { borderLeftColor: "var(--bad)" },
  ".cm-panels": { backgroundColor: "var(--raised)", color: "var(--text)" },
});
