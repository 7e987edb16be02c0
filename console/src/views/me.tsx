export function MeView() { return <p class="empty">Not there yet.</p>; }
