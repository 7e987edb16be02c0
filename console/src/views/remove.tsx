// Deletes an object, after saying what follows from it.
import { useEffect, useState } from "preact/hooks";
import { json, messageOf } from "../api/client";
import { kindOf, linkOf, nameOf, pathOf, type Kind } from "../api/discovery";
import { countIn, countOf } from "../model/counts";
import { allDependents, familyOf, type Family, type Relative } from "../model/relatives";
import type { Obj } from "../model/live";
import { objectLink } from "../route";
import { announce } from "../ui/announce";
import { Dialog } from "../ui/dialog";

type Policy = "Background" | "Foreground" | "Orphan";

const policies: [Policy, string][] = [
  ["Background", "it at once, then its dependents"], ["Foreground", "its dependents first, then it"], ["Orphan", "it alone: its dependents stay"],
];

export function DeleteDialog({ kind, object, onClose }: { kind: Kind; object: Obj; onClose: () => void }) {
  const [family, setFamily] = useState<Family>();
  const [inside, setInside] = useState("");
  const [policy, setPolicy] = useState<Policy>("Background");
  const [wrong, setWrong] = useState("");
  const { name, namespace, uid, finalizers } = object.metadata;
  useEffect(() => {
    void familyOf(object).then(setFamily, (error) => setWrong(messageOf(error)));
    void insideOf(kind, object).then(setInside);
  }, []);
  const follows = family && allDependents(family, uid);
  const remove = async () => {
    try {
      await json(pathOf(kind, namespace, name), {
        method: "DELETE", type: "application/json",
        body: JSON.stringify({ apiVersion: "v1", kind: "DeleteOptions", propagationPolicy: policy, preconditions: { uid } }),
      });
      announce(`${name} is deleted`);
      onClose();
    } catch (error) {
      setWrong(messageOf(error));
    }
  };
  return (
    <Dialog label={`Delete ${kind.kind} ${name}`} onClose={onClose}>
      <h2>Delete {kind.kind} {name}?</h2>
      <div class="follows" role="status">
        {inside && <p>{inside}</p>}
        {finalizers?.length ? <p>It stays until who is responsible has removed these finalizers: <span class="mono">{finalizers.join(", ")}</span></p> : null}
        {!follows ? <p class="quiet">Looking for what depends on it…</p>
          : follows.length === 0 ? <p>Nothing depends on it.</p>
          : policy === "Orphan" ? <p>{follows.length} that depend on it stay, and lose their owner.</p>
          : <><p>{follows.length === 1 ? "One object goes" : `${follows.length} objects go`} with it, unless another owner keeps them:</p><List of={follows} /></>}
        {family && family.unread.length > 0 && <p class="quiet">Not looked at, or not all: {family.unread.join(", ")}</p>}
      </div>
      <fieldset><legend>What is removed</legend>
        {policies.map(([value, title]) => (
          <label key={value}><input type="radio" name="policy" checked={policy === value} onChange={() => setPolicy(value)} /> {value} <small>{title}</small></label>
        ))}
      </fieldset>
      {wrong && <p class="note bad" role="alert">{wrong}</p>}
      <p class="buttons"><button type="button" class="danger" onClick={remove}>Delete</button><button type="button" autoFocus onClick={onClose}>Cancel</button></p>
    </Dialog>
  );
}

/** How many are listed. */
const most = 50;

function List({ of: all }: { of: Relative[] }) {
  return (
    <ul class="relatives">
      {all.slice(0, most).map((r) => <li key={r.metadata.uid}><a href={objectLink(r.kind, r.metadata.namespace ?? "", r.metadata.name)}>{r.metadata.name}</a> <small>{nameOf(r.kind)}</small></li>)}
      {all.length > most && <li class="quiet">and {all.length - most} more</li>}
    </ul>
  );
}

/** What goes with an object that others are in: a namespace, or a definition. */
async function insideOf(kind: Kind, object: Obj): Promise<string> {
  if (kind.group === "" && kind.resource === "namespaces") {
    const { counted, unread } = await countIn(object.metadata.name);
    const rest = unread > 0 ? ` ${unread} kinds couldn't be counted.` : "";
    return `Everything in this namespace is deleted with it: ${counted.map(([k, n]) => `${n.toLocaleString("en")} ${nameOf(k)}`).join(", ") || "there's nothing"}.${rest}`;
  }
  if (kind.resource !== "customresourcedefinitions") return "";
  const { group, names, versions } = object.spec;
  const of = kindOf(linkOf({ group, version: versions[0].name, resource: names.plural }));
  if (!of) return `All its objects are deleted with it.`;
  const n = await countOf(of);
  return n === undefined ? "All its objects are deleted with it." : `All objects of this kind are deleted with it: ${n.toLocaleString("en")}.`;
}
