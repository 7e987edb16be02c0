// How long ago something was, as kubectl says it.

/** The age of a time, such as "5m3s". */
export function age(time: string, now = Date.now()): string {
  const s = Math.max(0, Math.floor((now - Date.parse(time)) / 1000));
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
