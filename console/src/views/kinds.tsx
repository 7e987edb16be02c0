// All that is served: kinds in their groups, with how many objects they have.
import { useEffect } from "preact/hooks";
import { fresh, kinds, linkOf, nameOf, type Kind } from "../api/discovery";
import { age } from "../model/age";
import { count, counts, news } from "../model/counts";
import { paneLink } from "../model/panes";
import { objectLink, replace, route, withQuery } from "../route";

export function KindsView() {
  useEffect(count, []);
  const words = route.value.query.get("q") ?? "";
  const found = kinds.value!.filter((k) => k.verbs.includes("list") && fits(k, words.toLowerCase()));
  const groups = Map.groupBy(found, (k) => k.group);
  return (
    <div class="page">
      <div class="tools">
        <h1>Kinds</h1>
        <input type="search" aria-label="Search kinds" placeholder="Search kinds" value={words} onInput={(e) => replace(withQuery({ q: e.currentTarget.value }))} />
        <span class="quiet" role="status">{found.length} kinds in {groups.size} groups</span>
      </div>
      {news.value.length > 0 && <Latest />}
      <div class="groups">
        {[...groups].map(([group, members]) => <Group key={group} name={group || "core"} members={members} />)}
      </div>
      {found.length === 0 && <p class="empty">No kind has that name.</p>}
    </div>
  );
}

function Group({ name, members }: { name: string; members: Kind[] }) {
  const timed = { elementtiming: "rows" }; // says to who measures it when it's on screen
  return (
    <section aria-label={name}>
      <h2 {...timed}>{name}<small>{members[0].versions.join(" ")}</small></h2>
      <ul class="kinds">{members.map((k) => <One key={linkOf(k)} kind={k} />)}</ul>
    </section>
  );
}

/** What came, changed and went since the page is open. */
function Latest() {
  return (
    <section class="card latest" aria-label="What is new">
      <h2>What is new</h2>
      <ol>{news.value.map((n) => (
        <li key={n.id} class={n.what}>
          <span class="quiet">{age(new Date(n.at).toISOString())}</span> <em class={`tag ${n.what === "gone" ? "bad" : n.what === "changed" ? "plain" : ""}`}>{n.what}</em>
          {" "}{n.kind.kind} {n.what === "gone" ? n.name : <a href={objectLink(n.kind, n.namespace, n.name)}>{n.name}</a>} {n.namespace && <small>{n.namespace}</small>}
        </li>
      ))}</ol>
    </section>
  );
}

function One({ kind: k }: { kind: Kind }) {
  const n = counts.value.get(linkOf(k));
  return (
    <li>
      <a href={paneLink([{ kind: linkOf(k) }])}>
        <span class="name">{k.kind}</span>
        {fresh.value.has(nameOf(k)) && <em class="tag">new</em>}
        <span class="quiet">{k.resource}{k.namespaced ? "" : " · cluster"}</span>
      </a>
      <data key={n?.moved} class={n?.moved ? "count moved" : "count"} value={n?.n ?? ""} aria-label={n ? n.n < 0 ? "not yours to list" : `${n.n} objects` : "not counted yet"}>
        {n ? n.n < 0 ? "–" : n.n.toLocaleString("en") : "·"}
      </data>
    </li>
  );
}

function fits(k: Kind, words: string): boolean {
  const text = `${k.kind} ${nameOf(k)} ${k.shortNames.join(" ")} ${k.categories.join(" ")}`.toLowerCase();
  return words.split(/\s+/).every((word) => text.includes(word));
}
