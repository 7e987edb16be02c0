// How long ago something was, as kubectl says it.

const units: Record<string, number> = { s: 1, m: 60, h: 3600, d: 86400, y: 365 * 86400 };

/** How many seconds an age says, such as "5m3s"; undefined if it says none. */
export function secondsIn(text: string): number | undefined {
  if (!/^(\d+[smhdy])+$/.test(text)) return undefined;
  return [...text.matchAll(/(\d+)([smhdy])/g)].reduce((sum, [, n, unit]) => sum + Number(n) * units[unit], 0);
}

/** The age of a time, such as "5m3s". */
export function age(time: string, now = Date.now()): string { return ageOf((now - Date.parse(time)) / 1000); }

/** An age of so many seconds. */
export function ageOf(seconds: number): string {
  const s = Math.max(0, Math.floor(seconds));
  if (Number.isNaN(s)) return "";
  if (s < 120) return `${s}s`;
  const m = Math.floor(s / 60);
  if (m < 10) return s % 60 ? `${m}m${s % 60}s` : `${m}m`;
  if (m < 180) return `${m}m`;
  const h = Math.floor(m / 60);
  if (h < 8) return m % 60 ? `${h}h${m % 60}m` : `${h}h`;
  if (h < 48) return `${h}h`;
  const d = Math.floor(h / 24);
  return d < 730 ? `${d}d` : `${Math.floor(d / 365)}y`;
}
