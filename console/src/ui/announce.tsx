// What a screen reader says when something happens that isn't where the user is.
import { signal } from "@preact/signals";

const said = signal("");

export function announce(text: string): void { said.value = text; }

export function Announcer() {
  return <p class="unseen" role="status" aria-live="polite">{said.value}</p>;
}
