// Light and dark: as the system has it, until the user says otherwise.
import { signal } from "@preact/signals";

const chosen = signal<"" | "light" | "dark">("");

const system = matchMedia("(prefers-color-scheme: dark)");

export function shade(): void { system.addEventListener("change", () => apply()); apply(); }

/** Whether the page is dark now. */
export const dark = signal(system.matches);

function apply(): void {
  dark.value = chosen.peek() ? chosen.peek() === "dark" : system.matches;
  document.documentElement.dataset.shade = dark.peek() ? "dark" : "light";
}

export function toggleShade(): void {
  chosen.value = dark.peek() ? "light" : "dark";
  apply();
}

export function Shades() {
  return <button type="button" class="icon" onClick={toggleShade} aria-label={dark.value ? "Light colours" : "Dark colours"} title="Light or dark">{dark.value ? "☀" : "☾"}</button>;
}
