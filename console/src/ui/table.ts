// A table of any number of rows, of which as many are in the document as fit on the screen. It's plain DOM: a frame touches only
// the cells whose text differs.
import { age } from "../model/age";
import { ageInterval, cellOf, type Column, type Order, type Row, type Rows } from "../model/rows";
import { selectorIn } from "../model/problems";

/** The height of a row in px, as the stylesheet has it. */
const rowHeight = 26;

/** How many rows are drawn beyond each edge of what is on screen. */
const beyond = 6;

/** How long a row glows that has changed, in ms, and in how many steps it fades: each is painted by the processor. */
const glowTime = 1600, glowSteps = 5;

/** For how long the address may be behind the last key, in ms. */
const followTime = 1000;

interface Shown { element: HTMLElement; cells: HTMLElement[]; texts: string[]; row?: Row; index: number; aged: number; glows: number }

export interface TableOptions {
  label: string;
  rows: Rows;
  namespaced: boolean;
  wide: boolean; // shows all columns
  at: string; // the key of the row that it shows first, if it's there
  open(row: Row): void;
  order(o: Order): void;
}

interface Head { name: string; description: string; text(row: Row): string; numeric: boolean }

export class Table {
  readonly element = div("table");
  private head = div("row head", "row");
  private scroller = div("scroller", "presentation");
  private space = div("space", "presentation");
  private body = div("body", "rowgroup");
  private empty = div("empty");
  private pool: Shown[] = [];
  private heads: Head[] = [];
  private columns: Column[] | undefined;
  private active: string;
  private wanted: string; // the row that is still to be shown
  private order: Order = { column: "", down: false };
  private chosen?: { order: Order; at: number };
  private off: () => void;
  private timer: number;
  private resize = new ResizeObserver(() => this.draw());
  private frame = 0;
  private fades = 0;
  private measured = 0;

  constructor(private o: TableOptions) {
    this.active = this.wanted = o.at;
    this.element.setAttribute("role", "grid");
    this.element.setAttribute("aria-label", o.label);
    this.element.tabIndex = 0;
    this.scroller.append(this.head, this.space);
    this.space.append(this.body);
    this.element.append(this.scroller, this.empty);
    this.scroller.addEventListener("scroll", () => this.soon(), { passive: true });
    this.element.addEventListener("keydown", (e) => this.key(e));
    this.body.addEventListener("click", (e) => {
      const row = this.pool.find((p) => p.element.contains(e.target as Node))?.row;
      if (!row) return;
      this.active = row.key;
      o.open(row);
    });
    this.resize.observe(this.scroller);
    this.off = o.rows.subscribe(() => this.draw());
    this.timer = window.setInterval(() => this.draw(), ageInterval);
  }

  close(): void {
    this.off();
    this.resize.disconnect();
    clearInterval(this.timer);
    clearTimeout(this.fades);
    cancelAnimationFrame(this.frame);
  }

  /** Takes the order that the address has. One of before the last key isn't taken: the address follows keys with a delay. */
  setOrder(order: Order): void {
    const last = this.chosen;
    if (last && Date.now() - last.at < followTime && (order.column !== last.order.column || order.down !== last.order.down)) return;
    this.order = order;
    this.drawHead();
  }

  private soon(): void {
    if (!this.frame) this.frame = requestAnimationFrame(() => { this.frame = 0; this.draw(); });
  }

  draw(): void {
    const { rows } = this.o;
    if (rows.columns !== this.columns || this.measured < 50 && rows.shown.length > this.measured) this.drawHead();
    const height = this.scroller.clientHeight;
    let top = this.scroller.scrollTop;
    this.space.style.height = `${rows.shown.length * rowHeight}px`;
    if (this.wanted && rows.synced) top = this.showWanted(height) ?? top;
    const first = Math.max(0, Math.min(Math.floor(top / rowHeight) - beyond, rows.shown.length - 1));
    const last = Math.min(rows.shown.length, Math.ceil((top + height) / rowHeight) + beyond);
    this.grow(Math.max(0, last - first));
    const now = performance.now();
    const used = new Set<Shown>();
    let glows = false;
    let active = ""; // the id of the active row, if it's drawn
    for (let i = first; i < last; i++) {
      const p = this.pool[i % this.pool.length];
      used.add(p);
      this.drawRow(p, rows.shown[i], i, now);
      glows ||= p.glows > 0;
      if (rows.shown[i].key === this.active) active = p.element.id;
    }
    if (active !== (this.element.getAttribute("aria-activedescendant") ?? "")) {
      if (active) this.element.setAttribute("aria-activedescendant", active);
      else this.element.removeAttribute("aria-activedescendant");
    }
    for (const p of this.pool) {
      if (used.has(p) || p.index < 0) continue;
      p.index = -1;
      p.row = undefined;
      p.element.style.display = "none";
    }
    clearTimeout(this.fades);
    if (glows) this.fades = window.setTimeout(() => this.soon(), glowTime / glowSteps);
    this.element.setAttribute("aria-rowcount", String(rows.shown.length + 1));
    const { state, message = "" } = rows.health;
    this.empty.textContent = rows.shown.length > 0 ? "" : state === "refused" ? selectorIn(message) ? "" : message : rows.synced ? "There are none." : "";
  }

  /** Has as many rows in the document as are needed at once. */
  private grow(n: number): void {
    if (n <= this.pool.length && this.pool.every((p) => p.cells.length === this.heads.length)) return;
    n = Math.max(n, this.pool.length);
    this.body.replaceChildren();
    this.pool = Array.from({ length: n }, (_, i) => {
      const element = div("row", "row");
      element.id = `${this.id}-${i}`;
      element.style.display = "none"; // until it's drawn
      const cells = this.heads.map((h, at) => {
        const cell = div(h.numeric ? "cell number" : "cell", "gridcell");
        cell.setAttribute("aria-colindex", String(at + 1));
        cell.style.width = `var(--w${at})`;
        return cell;
      });
      element.append(...cells);
      this.body.append(element);
      return { element, cells, texts: cells.map(() => ""), index: -1, aged: 0, glows: 0 };
    });
  }

  private id = `t${Math.random().toString(36).slice(2, 8)}`;

  private drawRow(p: Shown, row: Row, index: number, now: number): void {
    const { element } = p;
    if (p.index !== index) {
      element.style.transform = `translateY(${index * rowHeight}px)`;
      element.setAttribute("aria-rowindex", String(index + 2));
      if (p.index < 0) element.style.display = "";
    }
    const active = row.key === this.active;
    if (active !== element.classList.contains("active")) {
      element.classList.toggle("active", active);
      element.setAttribute("aria-selected", String(active));
    }
    const aged = Math.floor(now / ageInterval);
    if (p.row !== row || p.aged !== aged) {
      element.classList.toggle("going", row.going);
      for (let i = 0; i < this.heads.length; i++) {
        const text = this.heads[i].text(row);
        if (p.texts[i] !== text) p.cells[i].textContent = p.texts[i] = text;
      }
    }
    p.index = index;
    p.row = row;
    p.aged = aged;
    this.glow(p, row.changed > 0 ? now - row.changed : glowTime);
  }

  /** Shows that a row has changed, so long ago: it glows and fades. */
  private glow(p: Shown, since: number): void {
    const step = Math.max(0, glowSteps - Math.floor(since / glowTime * glowSteps));
    if (p.glows === step) return;
    p.glows = step;
    if (step > 0) p.element.dataset.glow = String(step);
    else delete p.element.dataset.glow;
  }

  private drawHead(): void {
    const { rows, namespaced } = this.o;
    this.columns = rows.columns;
    this.measured = Math.min(50, rows.shown.length);
    const heads: Head[] = [];
    if (namespaced) heads.push({ name: "Namespace", description: "", text: (r) => r.namespace, numeric: false });
    rows.columns.forEach((c, at) => {
      if (c.priority > 0 && !this.o.wide) return;
      heads.push({
        name: c.name, description: c.description, numeric: c.type === "integer" || c.type === "number",
        text: c.name === "Age" || c.type === "date" ? (r) => age(c.name === "Age" ? r.created : String(r.cells[at] ?? "")) : (r) => cellOf(r, at, c.name),
      });
    });
    if (heads.length !== this.heads.length) {
      this.pool = [];
      this.body.replaceChildren();
    }
    for (const p of this.pool) p.row = undefined; // a column may show something else now
    this.heads = heads;
    const sample = rows.shown.slice(0, 50);
    heads.forEach((h, i) => {
      const longest = Math.max(h.name.length + 2, ...sample.map((r) => h.text(r).length));
      this.scroller.style.setProperty(`--w${i}`, `${Math.min(60, Math.max(6, longest)) + 2}ch`);
    });
    this.element.setAttribute("aria-colcount", String(heads.length));
    this.head.replaceChildren(...heads.map((h, i) => {
      const sorted = this.order.column === h.name;
      const cell = div(h.numeric ? "cell number" : "cell", "columnheader");
      cell.style.width = `var(--w${i})`;
      cell.setAttribute("aria-sort", sorted ? this.order.down ? "descending" : "ascending" : "none");
      const button = document.createElement("button");
      button.type = "button";
      button.tabIndex = -1;
      button.textContent = h.name + (sorted ? this.order.down ? " ↓" : " ↑" : "");
      button.title = h.description.slice(0, 300);
      button.addEventListener("click", () => this.sortBy(h.name));
      cell.append(button);
      return cell;
    }));
  }

  private sortBy(name: string): void {
    this.choose(this.order.column !== name ? { column: name, down: false } : this.order.down ? { column: "", down: false } : { column: name, down: true });
  }

  /** Takes an order at once, so that the next key goes on from it. */
  private choose(order: Order): void {
    this.chosen = { order, at: Date.now() };
    this.setOrder(order);
    this.o.order(order);
  }

  private key(e: KeyboardEvent): void {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    const { shown } = this.o.rows;
    const at = shown.findIndex((r) => r.key === this.active);
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / rowHeight) - 2);
    const moves: Record<string, number> = {
      ArrowDown: at + 1, j: at + 1, ArrowUp: at - 1, k: at - 1, PageDown: at + page, PageUp: at - page, Home: 0, End: shown.length - 1,
    };
    if (e.key in moves) this.move(moves[e.key]);
    else if (e.key === "Enter" && at >= 0) this.o.open(shown[at]);
    else if (e.key === "s") {
      const names = this.heads.map((h) => h.name);
      this.choose({ column: names[(names.indexOf(this.order.column) + 1) % names.length], down: false });
    } else if (e.key === "S" && this.order.column) this.choose({ column: this.order.column, down: !this.order.down });
    else return;
    e.preventDefault();
    e.stopPropagation();
  }

  /** Scrolls to the row that is wanted, once. It returns how far down that is. */
  private showWanted(height: number): number | undefined {
    const at = this.o.rows.shown.findIndex((r) => r.key === this.wanted);
    this.wanted = "";
    if (at < 0) return undefined;
    this.scroller.scrollTop = at * rowHeight - height / 2;
    return this.scroller.scrollTop;
  }

  private move(to: number): void {
    const { shown } = this.o.rows;
    if (shown.length === 0) return;
    to = Math.max(0, Math.min(shown.length - 1, to));
    this.wanted = "";
    this.active = shown[to].key;
    const top = to * rowHeight, room = this.scroller.clientHeight - rowHeight; // the head takes a row
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top + rowHeight > this.scroller.scrollTop + room) this.scroller.scrollTop = top + rowHeight - room;
    this.draw();
  }
}

function div(name: string, role = ""): HTMLElement {
  const e = document.createElement("div");
  e.className = name;
  if (role) e.setAttribute("role", role);
  return e;
}
