export function TrafficView() { return <p class="empty">Not there yet.</p>; }
