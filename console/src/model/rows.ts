// The rows of one kind, in the order in which they're shown. Each change costs what finding its place costs, however many there are.
import type { Health, WatchEvent } from "../api/watch";
import { ageOf, secondsIn } from "./age";

export interface Column { name: string; type: string; format: string; description: string; priority: number }

export interface Row {
  key: string; // namespace/name
  namespace: string;
  name: string;
  cells: unknown[];
  created: string;
  version: string;
  uid: string;
  going: boolean; // is being deleted
  changed: number; // when it changed last, by performance.now(); 0 if it hasn't since it was first seen
  got: number; // when its cells came, by performance.now()
  state: number; // in which state it was seen last
  by: string | number; // what it's sorted by
}

export interface Order { column: string; down: boolean }

/** How often the rows' age is drawn anew, in ms. */
export const ageInterval = 5000;

export class Rows {
  columns: Column[] = [];
  shown: Row[] = [];
  synced = false;
  health: Health = { state: "connecting" };
  private all = new Map<string, Row>();
  private order: Order = { column: "", down: false };
  private words: string[] = [];
  private state = 0;
  private listeners = new Set<() => void>();
  private timer = 0;

  get size(): number { return this.all.size; }

  /** Calls f soon after something has changed, at most once a frame. */
  subscribe(f: () => void): () => void {
    this.listeners.add(f);
    return () => this.listeners.delete(f);
  }

  changed(): void {
    if (this.timer) return;
    this.timer = requestAnimationFrame(() => {
      this.timer = 0;
      for (const f of this.listeners) f();
    });
  }

  begin(): void { this.state++; this.synced = false; this.changed(); }

  /** What the state doesn't have is gone. */
  endState(): void {
    for (const row of [...this.all.values()]) if (row.state !== this.state) this.all.delete(row.key);
    this.synced = true;
    this.sort();
  }

  /** Forgets the rows, for another selector. */
  clear(): void {
    this.all.clear();
    this.shown = [];
    this.synced = false;
    this.changed();
  }

  tell(health: Health): void { this.health = health; this.changed(); }

  apply(e: WatchEvent): void {
    if (e.object.columnDefinitions) this.columns = e.object.columnDefinitions;
    for (const r of e.object.rows ?? []) {
      if (e.type === "DELETED") this.remove(r.object.metadata);
      else this.put(r);
    }
    this.changed();
  }

  private put(r: { cells: unknown[]; object: { metadata: any } }): void {
    const m = r.object.metadata;
    const key = `${m.namespace ?? ""}/${m.name}`;
    const old = this.all.get(key);
    if (old && m.resourceVersion && old.version === m.resourceVersion) { // what is made for each answer has none
      old.state = this.state;
      return;
    }
    const row: Row = {
      key, namespace: m.namespace ?? "", name: m.name, cells: r.cells, created: m.creationTimestamp ?? "", version: m.resourceVersion, uid: m.uid,
      going: !!m.deletionTimestamp, changed: this.synced ? performance.now() : 0, got: performance.now(), state: this.state, by: "",
    };
    row.by = this.valueOf(row);
    this.all.set(key, row);
    if (!this.synced && this.order.column) return; // sorted once it's whole
    if (old && old.by === row.by) {
      const at = this.find(old);
      if (this.shown[at] === old) {
        if (this.matches(row)) this.shown[at] = row;
        else this.shown.splice(at, 1);
        return;
      }
    } else if (old) {
      this.takeOut(old);
    }
    if (this.matches(row)) this.shown.splice(this.find(row), 0, row);
  }

  private remove(m: any): void {
    const key = `${m.namespace ?? ""}/${m.name}`;
    const old = this.all.get(key);
    if (!old) return;
    this.all.delete(key);
    this.takeOut(old);
  }

  private takeOut(row: Row): void {
    const at = this.find(row);
    if (this.shown[at] === row) this.shown.splice(at, 1);
  }

  /** The index of a row, or where it would be. */
  private find(row: Row): number {
    let low = 0, high = this.shown.length;
    if (high > 0 && this.compare(this.shown[high - 1], row) < 0) return high; // as when the state comes in order
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.compare(this.shown[middle], row) < 0) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  private compare = (a: Row, b: Row): number => {
    if (a.by !== b.by) {
      const less = typeof a.by === typeof b.by ? a.by < b.by : typeof a.by === "number";
      return less === this.order.down ? 1 : -1;
    }
    if (a.namespace !== b.namespace) return a.namespace < b.namespace ? -1 : 1;
    return a.name < b.name ? -1 : a.name > b.name ? 1 : 0;
  };

  setOrder(order: Order): void {
    if (order.column === this.order.column && order.down === this.order.down) return;
    this.order = order;
    this.sort();
  }

  /** Shows only rows that have each of the words in their name, namespace or cells. */
  setWords(text: string): void {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.join(" ") === this.words.join(" ")) return;
    this.words = words;
    this.sort();
  }

  private sort(): void {
    const rows: Row[] = [];
    for (const row of this.all.values()) {
      row.by = this.valueOf(row);
      if (this.matches(row)) rows.push(row);
    }
    this.shown = rows.sort(this.compare);
    this.changed();
  }

  private matches(row: Row): boolean {
    return this.words.every((word) => row.key.includes(word) || row.cells.some((cell) => String(cell ?? "").toLowerCase().includes(word)));
  }

  private valueOf(row: Row): string | number {
    const name = this.order.column;
    if (name === "") return "";
    if (name === "Namespace") return row.namespace;
    if (name === "Age") return -Date.parse(row.created);
    const at = this.columns.findIndex((c) => c.name === name);
    const value = at < 0 ? "" : row.cells[at];
    if (typeof value === "number") return value;
    const text = String(value ?? "");
    if (text !== "" && !Number.isNaN(Number(text))) return Number(text);
    const seconds = isAge(name) || name === "Duration" ? secondsIn(text) : undefined;
    if (seconds !== undefined) return isAge(name) ? seconds - row.got / 1000 : seconds; // ages grow, all as fast
    return name === "Name" ? text : quantityIn(text) ?? text;
  }
}

/** Whether a column's texts are ages as they were when they came. */
function isAge(column: string): boolean { return column.endsWith(" Seen"); }

/** What a cell of a column says now. */
export function cellOf(row: Row, at: number, column: string): string {
  const text = String(row.cells[at] ?? ""), seconds = isAge(column) ? secondsIn(text) : undefined;
  return seconds === undefined ? text : ageOf(seconds + (performance.now() - row.got) / 1000);
}

const suffixes: Record<string, number> = {
  m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40, Pi: 2 ** 50, Ei: 2 ** 60,
};

/** The number that a quantity is, such as "10Gi". */
function quantityIn(text: string): number | undefined {
  const [, number, suffix] = /^([+-]?\d+(?:\.\d+)?)(m|[kMGTPE]|[KMGTPE]i)$/.exec(text) ?? [];
  return suffix === undefined ? undefined : Number(number) * suffixes[suffix];
}
