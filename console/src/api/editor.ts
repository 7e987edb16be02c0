// The script of the editor, which comes when it's first needed.
import type * as module from "../editor/editor";

let loaded: Promise<typeof module> | undefined;

export function loadEditor(): Promise<typeof module> {
  loaded ??= import("../editor/editor");
  return loaded;
}

export type { Editor, Problem, Suggestion } from "../editor/editor";
