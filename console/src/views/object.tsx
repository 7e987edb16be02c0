export function ObjectView() { return <p class="empty">Not there yet.</p>; }
