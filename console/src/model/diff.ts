// The lines by which two texts differ.

export interface Line { sign: " " | "+" | "-"; text: string }

/** How many lines of a text are compared. Longer ones are shown as replaced. */
const most = 4000;

/** Compares two texts by lines, as diff does: the shortest edit, found by Myers' algorithm. */
export function diff(before: string, after: string): Line[] {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const same = (text: string): Line => ({ sign: " ", text });
  return [...a.slice(0, head).map(same), ...edit(a.slice(head, a.length - tail), b.slice(head, b.length - tail)), ...a.slice(a.length - tail).map(same)];
}

function edit(a: string[], b: string[]): Line[] {
  const removed = a.map((text): Line => ({ sign: "-", text })), added = b.map((text): Line => ({ sign: "+", text }));
  if (a.length === 0 || b.length === 0 || a.length + b.length > most) return [...removed, ...added];
  const steps: Map<number, number>[] = [];
  let far = new Map([[1, 0]]);
  for (let d = 0; ; d++) {
    steps.push(new Map(far));
    for (let k = -d; k <= d; k += 2) {
      let x = k === -d || k !== d && (far.get(k - 1) ?? -1) < (far.get(k + 1) ?? -1) ? far.get(k + 1)! : far.get(k - 1)! + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      far.set(k, x);
      if (x >= a.length && x - k >= b.length) return walkBack(a, b, steps);
    }
  }
}

function walkBack(a: string[], b: string[], steps: Map<number, number>[]): Line[] {
  const lines: Line[] = [];
  let x = a.length, y = b.length;
  for (let d = steps.length - 1; d >= 0; d--) {
    const far = steps[d], k = x - y;
    const from = k === -d || k !== d && (far.get(k - 1) ?? -1) < (far.get(k + 1) ?? -1) ? k + 1 : k - 1;
    const fromX = far.get(from)!, fromY = fromX - from;
    while (x > fromX && y > fromY && x > 0 && y > 0) { lines.push({ sign: " ", text: a[--x] }); y--; }
    if (d === 0) break;
    if (x === fromX) lines.push({ sign: "+", text: b[--y] });
    else lines.push({ sign: "-", text: a[--x] });
  }
  return lines.reverse();
}

/** A diff with only some lines around each change; null stands for lines that are left out. */
export function nearChanges(lines: Line[], around = 3): (Line | null)[] {
  const keep = new Set<number>();
  lines.forEach((l, i) => { if (l.sign !== " ") for (let j = i - around; j <= i + around; j++) keep.add(j); });
  const shown: (Line | null)[] = [];
  lines.forEach((l, i) => {
    if (keep.has(i)) shown.push(l);
    else if (shown.length === 0 || shown[shown.length - 1] !== null) shown.push(null);
  });
  return shown;
}
