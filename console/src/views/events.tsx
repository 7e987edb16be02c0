// The Events about an object, as they come.
import { useEffect, useState } from "preact/hooks";
import { watch, type Health } from "../api/watch";
import { age } from "../model/age";
import type { Obj } from "../model/live";

interface Event {
  metadata: { uid: string; creationTimestamp: string };
  type?: string; reason?: string; message?: string; count?: number; lastTimestamp?: string; eventTime?: string;
  source?: { component?: string }; reportingComponent?: string;
}

/** How many are shown, the newest first. */
const most = 200;

export function EventsTab({ object }: { object: Obj }) {
  const [events, setEvents] = useState<Event[]>([]);
  const [health, setHealth] = useState<Health>({ state: "connecting" });
  const [synced, setSynced] = useState(false);
  const { uid, namespace } = object.metadata;
  useEffect(() => {
    const all = new Map<string, Event>();
    const show = () => setEvents([...all.values()].sort((a, b) => timeOf(a) < timeOf(b) ? 1 : -1).slice(0, most));
    return watch({
      url: `/api/v1/namespaces/${encodeURIComponent(namespace || "default")}/events?fieldSelector=${encodeURIComponent(`involvedObject.uid=${uid}`)}`,
      accept: "application/json", begin: () => all.clear(), synced: () => { setSynced(true); show(); }, health: setHealth,
      event: (e) => {
        if (e.type === "DELETED") all.delete(e.object.metadata.uid);
        else all.set(e.object.metadata.uid, e.object);
        show();
      },
    });
  }, [uid]);
  if (events.length === 0) return <p class="empty" role="status">{health.state === "refused" ? health.message : synced ? "No event is about it." : "Reading…"}</p>;
  return (
    <table class="list" aria-label="Events">
      <thead><tr><th>Age</th><th>Type</th><th>Reason</th><th>Message</th><th>From</th></tr></thead>
      <tbody>{events.map((e) => (
        <tr key={e.metadata.uid} class={e.type === "Warning" ? "warning" : ""}>
          <td>{age(timeOf(e))}{(e.count ?? 1) > 1 && ` ×${e.count}`}</td><td>{e.type}</td><td>{e.reason}</td><td class="wide">{e.message}</td><td>{e.source?.component || e.reportingComponent}</td>
        </tr>
      ))}</tbody>
    </table>
  );
}

const timeOf = (e: Event): string => e.lastTimestamp || e.eventTime || e.metadata.creationTimestamp;
