// The keys, on one page.
import { signal } from "@preact/signals";
import { Dialog } from "./dialog";

const open = signal(false);

export function openHelp(): void { open.value = true; }

const keys: [string, string][] = [
  ["Ctrl K  or  :", "go to a kind, a view or an action"],
  ["/", "search in the view"],
  ["g k, g o, g d, g t, g w", "kinds, objects, definitions, traffic, who am I"],
  ["↑ ↓  or  k j", "move in a table or tree, whatever has the focus"],
  ["Home End PgUp PgDn", "move far"],
  ["Enter", "open the row"],
  ["s, S", "sort by the next column, the other way round"],
  ["e", "edit the object"],
  ["x", "delete the object"],
  ["[ ]", "the tab or table before, the next one"],
  ["Ctrl Enter", "apply what is edited"],
  ["Esc", "leave a field for the table, a dialog, an editor"],
  ["?", "these keys"],
];

export function Help() {
  if (!open.value) return null;
  const licenses = document.getElementById("licenses") as HTMLAnchorElement;
  return (
    <Dialog label="Keys" onClose={() => { open.value = false; }}>
      <h2>Keys</h2>
      <dl class="keys">{keys.map(([key, what]) => <><dt><kbd>{key}</kbd></dt><dd>{what}</dd></>)}</dl>
      <p class="quiet"><a href={licenses.href}>Licenses</a> of what the console is made of.</p>
      <p><button type="button" autoFocus onClick={() => { open.value = false; }}>Close</button></p>
    </Dialog>
  );
}
