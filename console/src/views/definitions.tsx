export function DefinitionsView() { return <p class="empty">Not there yet.</p>; }
