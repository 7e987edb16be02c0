// What the user may do. The server is asked once for each question, and what can't be asked counts as allowed: it refuses by itself.
import { signal, type Signal } from "@preact/signals";
import { json, token } from "./client";
import type { Kind } from "./discovery";

const asked = new Map<string, Signal<boolean>>();
let whose = "";

/** Whether the user may do something: false until it's known. */
export function may(verb: string, k: Kind, namespace = "", name = ""): boolean {
  if (whose !== token.value) { // another user has other rights
    whose = token.value;
    asked.clear();
  }
  const question = JSON.stringify([verb, k.group, k.resource, namespace, name]);
  let answer = asked.get(question);
  if (!answer) {
    answer = signal(false);
    asked.set(question, answer);
    void ask(answer, { verb, group: k.group, version: k.version, resource: k.resource, namespace, name });
  }
  return k.verbs.includes(verb) && answer.value;
}

interface Rule { verbs: string[]; apiGroups?: string[]; resources?: string[]; resourceNames?: string[] }

/** Tells which kinds the user may create in a namespace, by one question for all: all of them where it can't be asked. */
export async function creatable(namespace: string): Promise<(k: Kind) => boolean> {
  try {
    const review = await json<{ status: { resourceRules: Rule[]; incomplete: boolean } }>("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", {
      method: "POST", type: "application/json",
      body: JSON.stringify({ apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectRulesReview", spec: { namespace } }),
    });
    const has = (all: string[] | undefined, one: string) => !!all && (all.includes(one) || all.includes("*"));
    const { resourceRules, incomplete } = review.status;
    return (k) => k.verbs.includes("create") && (incomplete || resourceRules.some((r) => has(r.verbs, "create") && has(r.apiGroups, k.group) && has(r.resources, k.resource) && !r.resourceNames?.length));
  } catch {
    return (k) => k.verbs.includes("create");
  }
}

async function ask(answer: Signal<boolean>, resourceAttributes: Record<string, string>): Promise<void> {
  try {
    const review = await json<{ status: { allowed: boolean } }>("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      method: "POST", type: "application/json",
      body: JSON.stringify({ apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { resourceAttributes } }),
    });
    answer.value = review.status.allowed;
  } catch {
    answer.value = true;
  }
}
