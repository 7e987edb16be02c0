// Keys that work everywhere. In a field only those with Control do.
import { go } from "../route";
import { openPalette } from "./palette";
import { openHelp } from "./help";

/** Whether somebody types there. */
export function typing(e: KeyboardEvent): boolean {
  const at = e.composedPath()[0];
  return at instanceof HTMLElement && (at.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(at.tagName));
}

const views: Record<string, string> = { k: "#/kinds", o: "#/objects", d: "#/definitions", t: "#/traffic", w: "#/me" };

/** How long after g its second key may come, in ms. */
const pairTime = 1200;

/** The keys that a table or a tree takes, also when nothing of it has the focus. */
const listKeys = ["ArrowDown", "ArrowUp", "j", "k", "Home", "End", "PageDown", "PageUp", "Enter", "s", "S"];

/** The tables and trees of the view. */
const lists = (): HTMLElement[] => [...document.querySelectorAll<HTMLElement>("main [role=grid], main [role=tree]")];

/** The table or tree that had the focus last, if it's still there. */
let latest: HTMLElement | null = null;

const listOf = (at: Element | null): HTMLElement | undefined =>
  at?.closest(".pane")?.querySelector<HTMLElement>("[role=grid]") ?? (latest?.isConnected ? latest : lists()[0]);

/** Gives a table or tree the focus and a key that it would have taken. It reports whether there's one. */
function toList(e: KeyboardEvent): boolean {
  const at = document.activeElement, nowhere = !at || at === document.body || at.id === "main";
  const list = listKeys.includes(e.key) && (nowhere || e.key !== "Enter") ? listOf(null) : undefined; // Enter is for the link or button
  if (!list || list === at) return false;
  list.focus();
  list.dispatchEvent(new KeyboardEvent("keydown", { key: e.key, cancelable: true }));
  return true;
}

/** Goes to the table before or after the one that had the focus last, if there are several. */
function toBeside(by: number): boolean {
  const all = lists();
  if (all.length < 2) return false;
  const at = all.indexOf(listOf(document.activeElement)!);
  all[(at + by + all.length) % all.length].focus();
  return true;
}

/** Leaves a field for the table or tree that it's about. */
function leave(field: HTMLElement): void {
  field.blur();
  listOf(field)?.focus();
}

export function bindKeys(): void {
  let pressed = -Infinity; // when g was
  addEventListener("focusin", (e) => { latest = (e.target as Element).closest<HTMLElement>("[role=grid], [role=tree]") ?? latest; });
  addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
      e.preventDefault();
      openPalette();
      return;
    }
    if (e.defaultPrevented || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    if (typing(e)) {
      const at = e.composedPath()[0] as HTMLElement;
      if (e.key !== "Escape" || at.isContentEditable) return; // the editor leaves by itself
      e.preventDefault(); // or a search field would forget its text
      leave(at);
      return;
    }
    if (performance.now() - pressed < pairTime && views[e.key]) {
      pressed = -Infinity;
      e.preventDefault();
      go(views[e.key]);
      document.getElementById("main")?.focus();
      return;
    }
    pressed = e.key === "g" ? performance.now() : -Infinity;
    if (e.key === "?") openHelp();
    else if (e.key === ":") openPalette();
    else if (e.key === "/") (listOf(null)?.closest(".pane") ?? document).querySelector<HTMLInputElement>("main input[type=search]")?.focus();
    else if (e.key === "[" || e.key === "]" ? !toBeside(e.key === "]" ? 1 : -1) : !toList(e)) return;
    e.preventDefault();
  });
}
