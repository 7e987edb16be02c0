// How two texts differ, line by line.
import { diff, nearChanges } from "../model/diff";

interface Props { before: string; after: string; title: string; none: string; onClose?: () => void }

export function DiffView({ before, after, title, none, onClose }: Props) {
  const lines = nearChanges(diff(before, after));
  const changes = lines.filter((l) => l && l.sign !== " ").length;
  return (
    <section class="diff" aria-label="Difference">
      <div class="tools"><h2>{changes === 0 ? none : title}</h2><span class="grow" />{onClose && <button type="button" onClick={onClose}>Close</button>}</div>
      {changes > 0 && (
        <pre tabIndex={0}>{lines.map((l, i) => l
          ? <span key={i} class={l.sign === "+" ? "added" : l.sign === "-" ? "removed" : ""}>{l.sign} {l.text}{"\n"}</span>
          : <span key={i} class="quiet">⋯{"\n"}</span>)}</pre>
      )}
    </section>
  );
}
