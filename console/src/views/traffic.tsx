// What goes on: the last quarter of an hour as plots, who watches, and who else serves.
import { useEffect, useRef, useState } from "preact/hooks";
import type uPlot from "uplot";
import { json, messageOf, Refusal } from "../api/client";
import { dark } from "../ui/shade";

interface Points { intervalSeconds: number; times: number[]; series: Record<string, (number | null)[]>; replicas?: { name: string; acts: boolean }[] }

interface Watcher { resource: string; namespace?: string; labelSelector?: string; fieldSelector?: string; shardSelector?: string; name?: string; userAgent?: string; resourceVersion?: string; lagEvents: number; lagSeconds: number; bytesSent: number; ageSeconds: number }

interface Member { name: string; id: string; address: string; voter: boolean; leader: boolean; answers: boolean; lag: number }

/** How often it's looked at, in ms. */
const interval = 5000;

const plots: { name: string; title: string; unit: (v: number) => string }[] = [
  { name: "writes", title: "Writes a second", unit: plain },
  { name: "events", title: "Events sent a second", unit: plain },
  { name: "watchers", title: "Watchers", unit: plain },
  { name: "lagSeconds", title: "How far the last watcher is behind", unit: seconds },
  { name: "memoryBytes", title: "Memory", unit: bytes },
  { name: "historySeconds", title: "How far back history reaches", unit: seconds },
  { name: "refusals", title: "Refusals a second", unit: plain },
];

function plain(v: number): string { return v >= 1e6 ? `${+(v / 1e6).toFixed(1)}M` : v >= 1e4 ? `${+(v / 1e3).toFixed(1)}k` : `${+v.toFixed(2)}`; }
function seconds(v: number): string { return v >= 7200 ? `${+(v / 3600).toFixed(1)} h` : v >= 120 ? `${+(v / 60).toFixed(1)} min` : v >= 1 || v === 0 ? `${+v.toFixed(1)} s` : `${+(v * 1000).toFixed(1)} ms`; }
function bytes(v: number): string { return v >= 1 << 30 ? `${+(v / (1 << 30)).toFixed(1)} GiB` : v >= 1 << 20 ? `${+(v / (1 << 20)).toFixed(1)} MiB` : `${+(v / 1024).toFixed(0)} KiB`; }

/** Asks for a path again and again. What isn't there or not the user's says why. */
function usePolled<T>(path: string): { value?: T; wrong: string } {
  const [state, set] = useState<{ value?: T; wrong: string }>({ wrong: "" });
  useEffect(() => {
    let stopped = false, timer = 0;
    const round = async () => {
      try {
        const value = await json<T>(path);
        if (!stopped) set({ value, wrong: "" });
      } catch (error) {
        if (!stopped) set((was) => ({ ...was, wrong: messageOf(error) }));
        if (error instanceof Refusal && error.code !== 429 && error.code < 500) return; // it stays so
      }
      if (!stopped) timer = window.setTimeout(round, interval);
    };
    void round();
    return () => { stopped = true; clearTimeout(timer); };
  }, [path]);
  return state;
}

export function TrafficView() {
  const points = usePolled<Points>("/apiserver-lite/v1/traffic");
  const watchers = usePolled<{ watchers: Watcher[] }>("/debug/watchers");
  return (
    <div class="page">
      <div class="tools"><h1>Traffic</h1><span class="quiet">The last quarter of an hour, as the server has kept it.</span></div>
      {points.wrong && !points.value && <p class="note" role="status">The points aren't there to see: {points.wrong}</p>}
      {points.value && <div class="plots">{plots.map((p) => points.value!.series[p.name] && <Plot key={`${p.name} ${dark.value}`} title={p.title} unit={p.unit} times={points.value!.times} values={points.value!.series[p.name]} />)}</div>}
      <div class="sheet"><h2>Watchers</h2>{watchers.wrong ? <p class="note" role="status">{watchers.wrong}</p> : watchers.value && <Watchers all={watchers.value.watchers} />}</div>
      <div class="sheet"><h2>Replicas</h2>{points.value ? <Replicas all={points.value.replicas} /> : points.wrong && <p class="note" role="status">{points.wrong}</p>}</div>
      {(points.value?.replicas || points.wrong) && <Members />}
    </div>
  );
}

let loaded: Promise<typeof uPlot> | undefined;

/** What draws plots: a script of its own, which comes with the first of them. */
function drawing(): Promise<typeof uPlot> { return loaded ??= import("uplot").then((m) => m.default); }

function Plot({ title, unit, times, values }: { title: string; unit: (v: number) => string; times: number[]; values: (number | null)[] }) {
  const at = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef<uPlot.AlignedData>([[]]);
  latest.current = [times, values];
  useEffect(() => {
    const holder = at.current!;
    const resize = new ResizeObserver(() => plot.current?.setSize(sizeIn(holder)));
    void drawing().then((UPlot) => {
      if (!holder.isConnected) return; // another view came before the script
      plot.current = new UPlot({ ...looks(unit), ...sizeIn(holder) }, latest.current, holder);
      resize.observe(holder);
    });
    return () => { resize.disconnect(); plot.current?.destroy(); };
  }, []);
  useEffect(() => plot.current?.setData(latest.current), [times, values]);
  const known = values.filter((v): v is number => v !== null), last = known.at(-1);
  const now = last === undefined ? "" : unit(last);
  return (
    <figure class="card plot">
      <figcaption>{title} <b>{now}</b></figcaption>
      <div ref={at} role="img" aria-label={`${title}: ${now} now${known.length > 0 ? `, at most ${unit(Math.max(...known))}` : ""}`} />
    </figure>
  );
}

const sizeIn = (holder: HTMLElement) => ({ width: Math.max(200, holder.clientWidth), height: 130 });

/** What a plot spans, in seconds. */
const span = 15 * 60;

/** By what an axis may go on, where tens don't make round numbers. */
const steps = new Map<(v: number) => string, number[]>([
  [bytes, Array.from({ length: 30 }, (_, i) => 1024 * 2 ** i)],
  [seconds, [.001, .01, .1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 1800, 3600, 7200, 6 * 3600, 12 * 3600, 24 * 3600]],
]);

/** A plot in the page's colours. */
function looks(unit: (v: number) => string): Omit<uPlot.Options, "width" | "height"> {
  const style = getComputedStyle(document.documentElement);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis: uPlot.Axis = { stroke: colour("--quiet"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px sans-serif" };
  return {
    legend: { show: false }, cursor: { y: false, points: { size: 6 } },
    scales: { x: { range: (_u, _min, max) => [max - span, max] }, y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [
      { ...axis, size: 24, space: 60, incrs: [60, 180, 300], values: (_u, all) => all.map((at) => new Date(at * 1000).toTimeString().slice(0, 5)) },
      { ...axis, size: 60, space: 28, incrs: steps.get(unit), values: (_u, all) => all.map(unit) },
    ],
    series: [{}, { stroke: colour("--accent"), width: 1.5, fill: colour("--accent-ground"), points: { show: false } }],
  };
}

/** How many watchers are listed, those that are furthest behind first. */
const most = 200;

function Watchers({ all }: { all: Watcher[] }) {
  const sorted = [...all].sort((a, b) => b.lagEvents - a.lagEvents || b.ageSeconds - a.ageSeconds);
  if (all.length === 0) return <p class="quiet">Nobody watches.</p>;
  return (
    <div class="wideholder"><table class="list" aria-label="Watchers">
      <thead><tr><th>Resource</th><th>Selects</th><th>Who</th><th class="number">Behind</th><th class="number">Sent</th><th class="number">Age</th></tr></thead>
      <tbody>{sorted.slice(0, most).map((w, i) => (
        <tr key={i} class={w.lagEvents > 0 ? "warning" : ""}>
          <td class="mono">{w.resource}</td><td class="wide mono">{[w.namespace && `namespace ${w.namespace}`, w.name && `name ${w.name}`, w.labelSelector, w.fieldSelector, w.shardSelector].filter(Boolean).join(" · ")}</td><td>{w.userAgent?.slice(0, 60)}</td>
          <td class="number">{w.lagEvents > 0 ? `${w.lagEvents} events, ${seconds(w.lagSeconds)}` : "no"}</td><td class="number">{bytes(w.bytesSent)}</td><td class="number">{seconds(w.ageSeconds)}</td>
        </tr>
      ))}</tbody>
    </table>{all.length > most && <p class="quiet">And {all.length - most} more.</p>}</div>
  );
}

/** The processes that serve one store, and which of them does what one does for all. */
function Replicas({ all }: { all: Points["replicas"] }) {
  if (!all) return <p class="quiet">This server has its store alone, and does all by itself.</p>;
  if (all.length === 0) return <p class="quiet" role="status">Which ones there are isn't known: the store doesn't answer.</p>;
  return (
    <table class="list" aria-label="Replicas">
      <thead><tr><th>Replica</th><th>What it does</th></tr></thead>
      <tbody>{all.map((r) => (
        <tr key={r.name}>
          <td class="mono">{r.name}{r.name === location.host && <small> this one</small>}</td>
          <td class="wide">{r.acts ? <><em class="tag">acts</em> for all: garbage collection, namespaces, expiry, quotas</> : "serves, and takes over when the one that acts is gone"}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}

/** Those who have the store together, of a cluster that the processes make themselves. */
function Members() {
  const { value, wrong } = usePolled<{ members: Member[] }>("/apiserver-lite/members");
  if (!value || wrong) return null; // the store is elsewhere, or the members aren't the user's to see
  return (
    <div class="sheet"><h2>Members of the store</h2><div class="wideholder"><table class="list" aria-label="Members of the store">
      <thead><tr><th>Member</th><th>Address</th><th>Part</th><th>Answers</th><th class="number">Behind</th></tr></thead>
      <tbody>{value.members.map((m) => (
        <tr key={m.id} class={m.answers ? "" : "warning"}>
          <td class="mono">{m.name || m.id}</td><td class="mono">{m.address}</td><td>{m.leader ? <em class="tag">leader</em> : m.voter ? "voter" : "learner"}</td>
          <td>{m.answers ? "yes" : "no"}</td><td class="number">{m.lag > 0 ? `${m.lag.toLocaleString("en")} entries` : "no"}</td>
        </tr>
      ))}</tbody>
    </table></div></div>
  );
}
