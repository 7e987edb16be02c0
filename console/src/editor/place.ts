// Where in a document of YAML somebody types, by what is above and how far it's indented. The text needn't be whole.

export interface Place { path: string[]; of: "name" | "value"; typed: string }

/** The place at an offset: the names that lead there, in which "0" is an element of a list, and what is typed of the last one. */
export function placeAt(text: string, offset: number): Place | undefined {
  const lines = text.slice(0, offset).split("\n");
  const last = lines.pop()!;
  if (/^\s*#/.test(last)) return undefined;
  const value = /^(\s*(?:- +)*)([\w./-]+|"[^"]*"):\s+([\w.-]*)$/.exec(last);
  const name = /^(\s*(?:- +)*)([\w./-]*)$/.exec(last);
  if (value) return { path: [...above(lines, value[1]), unquoted(value[2])], of: "value", typed: value[3] };
  return name ? { path: above(lines, name[1]), of: "name", typed: name[2] } : undefined;
}

/** The path of what a line with such a beginning is in. */
function above(lines: string[], begin: string): string[] {
  const path: string[] = [];
  let depth = begin.length;
  for (let dashes = [...begin].map((c, i) => c === "-" ? i : -1).filter((i) => i >= 0); dashes.length > 0;) {
    depth = dashes.pop()!;
    path.unshift("0");
  }
  for (let i = lines.length - 1; i >= 0; i--) {
    const at = /^(\s*(?:- +)*)([\w./-]+|"[^"]*"):(?:\s|$)/.exec(lines[i]);
    if (!at) continue;
    const indent = at[1].length, dash = at[1].lastIndexOf("-");
    const inList = path[0] === "0" && indent === depth && dash < 0; // a list may be as far to the left as its name
    if (indent >= depth && !inList) {
      if (dash >= 0 && indent === depth && path[0] !== "0") { // the element that the line is in began there
        path.unshift("0");
        depth = at[1].indexOf("-");
      }
      continue;
    }
    path.unshift(unquoted(at[2]));
    depth = indent;
    if (dash >= 0) {
      path.unshift("0");
      depth = at[1].indexOf("-");
    }
    if (depth === 0 && dash < 0) break;
  }
  return path;
}

const unquoted = (s: string): string => s.replace(/^"(.*)"$/, "$1");
