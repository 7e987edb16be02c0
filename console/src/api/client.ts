// What the page asks of the server: fetch with the token, and refusals as the Status that Kubernetes' API answers with.
import { signal } from "@preact/signals";

/** The user's bearer token. It's in this variable and nowhere else: a reload forgets it. */
export const token = signal("");

/** Whether the server wants a credential that it wasn't shown. */
export const strange = signal(false);

export interface Cause { field?: string; message: string; reason?: string }

export interface Status {
  kind?: string;
  code: number;
  reason?: string;
  message: string;
  details?: { name?: string; causes?: Cause[]; retryAfterSeconds?: number };
}

/** A refusal is the server's answer that isn't a success. Its message is the server's. */
export class Refusal extends Error {
  constructor(readonly status: Status) { super(status.message); }
  get code(): number { return this.status.code; }
}

export interface Call {
  method?: string;
  accept?: string;
  type?: string; // of the body
  body?: string;
  signal?: AbortSignal;
  answer?: Promise<Response>; // if it was asked already
}

/** Asks the server. It throws a Refusal if the answer is none of success, and what fetch throws if there is none. */
export async function call(path: string, c: Call = {}): Promise<Response> {
  const headers: Record<string, string> = { Accept: c.accept ?? "application/json" };
  if (c.type) headers["Content-Type"] = c.type;
  if (token.value) headers["Authorization"] = `Bearer ${token.peek()}`;
  const answer = await (c.answer ?? fetch(path, { method: c.method ?? "GET", headers, body: c.body, signal: c.signal, credentials: "same-origin", redirect: "error" }));
  if (answer.ok) return answer;
  if (answer.status === 401) strange.value = true;
  throw new Refusal(await statusOf(answer));
}

/** Asks for JSON. */
export async function json<T>(path: string, c: Call = {}): Promise<T> {
  return (await call(path, c)).json() as Promise<T>;
}

async function statusOf(answer: Response): Promise<Status> {
  const text = await answer.text();
  try {
    const status = JSON.parse(text) as Status;
    if (status.kind === "Status") return { ...status, code: status.code ?? answer.status };
  } catch { /* it's text */ }
  return { code: answer.status, message: text.slice(0, 500).trim() || answer.statusText || `HTTP ${answer.status}` };
}

/** What to tell of an error. */
export function messageOf(error: unknown): string {
  if (error instanceof Refusal) return error.message;
  if (error instanceof TypeError) return "The server doesn't answer.";
  return error instanceof Error ? error.message : String(error);
}
