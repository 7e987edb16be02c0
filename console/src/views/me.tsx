// Who the user is, as the server sees him, and what he may do.
import { useEffect, useState } from "preact/hooks";
import { json, messageOf, strange, token } from "../api/client";
import { namespaces } from "../model/namespaces";
import { replace, route, withQuery } from "../route";

interface Rules {
  resourceRules: { verbs: string[]; apiGroups?: string[]; resources?: string[]; resourceNames?: string[] }[];
  nonResourceRules: { verbs: string[]; nonResourceURLs?: string[] }[];
  incomplete: boolean;
}

interface User { username: string; uid?: string; groups?: string[]; extra?: Record<string, string[]> }

function review<T>(group: string, kind: string, resource: string, spec: object): Promise<T> {
  return json<{ status: T }>(`/apis/${group}/v1/${resource}`, {
    method: "POST", type: "application/json", body: JSON.stringify({ apiVersion: `${group}/v1`, kind, ...spec }),
  }).then((r) => r.status);
}

export function MeView() {
  const namespace = route.value.query.get("ns") ?? "default";
  const [user, setUser] = useState<User>();
  const [rules, setRules] = useState<Rules>();
  const [wrong, setWrong] = useState("");
  const say = (error: unknown) => setWrong(messageOf(error));
  useEffect(() => {
    void namespaces.look();
    void review<{ userInfo: User }>("authentication.k8s.io", "SelfSubjectReview", "selfsubjectreviews", {}).then((s) => setUser(s.userInfo), say);
  }, [token.value]);
  useEffect(() => {
    void review<Rules>("authorization.k8s.io", "SelfSubjectRulesReview", "selfsubjectrulesreviews", { spec: { namespace } }).then(setRules, say);
  }, [token.value, namespace]);
  return (
    <div class="page sheet">
      <div class="tools flush"><h1>Who am I</h1><span class="grow" />
        {token.value ? <button type="button" onClick={() => { token.value = ""; strange.value = true; }}>Forget the token</button> : <button type="button" onClick={() => { strange.value = true; }}>Give a token</button>}
      </div>
      {wrong && <p class="note bad" role="alert">{wrong}</p>}
      {user && (
        <dl class="facts">
          <dt>Name</dt><dd class="mono">{user.username}</dd>
          {user.uid && <><dt>UID</dt><dd class="mono">{user.uid}</dd></>}
          <dt>Groups</dt><dd>{user.groups?.map((g) => <span key={g} class="tag plain mono">{g}</span>)}</dd>
          {Object.entries(user.extra ?? {}).map(([name, values]) => <><dt>{name}</dt><dd class="mono">{values.join(", ")}</dd></>)}
          <dt>Credential</dt><dd>{token.value ? "a token, in this page's memory only" : "what the browser shows by itself, or none"}</dd>
        </dl>
      )}
      <div class="tools flush"><h2>What I may do in namespace</h2>
        <input aria-label="Namespace" list="my-namespaces" value={namespace} onChange={(e) => replace(withQuery({ ns: e.currentTarget.value }))} />
        <datalist id="my-namespaces">{namespaces.names.value.map((n) => <option key={n} value={n} />)}</datalist>
      </div>
      {rules && (
        <table class="list" aria-label="What I may do">
          <thead><tr><th>Verbs</th><th>Resources</th><th>Groups</th><th>Names</th></tr></thead>
          <tbody>
            {rules.resourceRules.map((r, i) => <tr key={i}><td class="mono">{r.verbs.join(" ")}</td><td class="wide mono">{r.resources?.join(" ")}</td><td class="mono">{r.apiGroups?.map((g) => g || "core").join(" ")}</td><td class="mono">{r.resourceNames?.join(" ")}</td></tr>)}
            {rules.nonResourceRules.map((r, i) => <tr key={`p${i}`}><td class="mono">{r.verbs.join(" ")}</td><td class="wide mono">{r.nonResourceURLs?.join(" ")}</td><td>paths</td><td /></tr>)}
          </tbody>
        </table>
      )}
      {rules?.incomplete && <p class="quiet">The server says that there may be more.</p>}
    </div>
  );
}
