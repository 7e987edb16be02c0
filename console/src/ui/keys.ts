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

export function bindKeys(): void {
  let pressed = 0;
  addEventListener("keydown", (e) => {
    if ((e.ctrlKey || e.metaKey) && e.key.toLowerCase() === "k") {
      e.preventDefault();
      openPalette();
      return;
    }
    if (typing(e) || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
    if (performance.now() - pressed < pairTime && views[e.key]) {
      pressed = 0;
      e.preventDefault();
      go(views[e.key]);
      document.getElementById("main")?.focus();
      return;
    }
    pressed = e.key === "g" ? performance.now() : 0;
    if (e.key === "?") openHelp();
    else if (e.key === ":") openPalette();
    else if (e.key === "/") document.querySelector<HTMLInputElement>("main input[type=search]")?.focus();
    else return;
    e.preventDefault();
  });
}
