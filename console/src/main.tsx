// The page: what is around each view, and which view is on screen.
import { render } from "preact";
import { useEffect } from "preact/hooks";
import { signal } from "@preact/signals";
import "./style.css";
import "uplot/dist/uPlot.min.css";
import { route } from "./route";
import { discover, kinds } from "./api/discovery";
import { messageOf, Refusal, strange, token } from "./api/client";
import { Announcer } from "./ui/announce";
import { Palette, openPalette } from "./ui/palette";
import { Help } from "./ui/help";
import { bindKeys } from "./ui/keys";
import { Shades, shade } from "./ui/shade";
import { SignIn } from "./views/signin";
import { KindsView } from "./views/kinds";
import { ObjectsView } from "./views/objects";
import { ObjectView } from "./views/object";
import { DefinitionsView } from "./views/definitions";
import { TrafficView } from "./views/traffic";
import { MeView } from "./views/me";

/** How often it's asked which kinds there are, in ms. */
const discoverInterval = 5000;

const views = [
  { name: "kinds", title: "Kinds", keys: "g k", view: KindsView },
  { name: "objects", title: "Objects", keys: "g o", view: ObjectsView },
  { name: "definitions", title: "Definitions", keys: "g d", view: DefinitionsView },
  { name: "traffic", title: "Traffic", keys: "g t", view: TrafficView },
  { name: "me", title: "Who am I", keys: "g w", view: MeView },
];

/** Why nothing is known of the server; empty if it answers. */
const trouble = signal("");

async function look(): Promise<void> {
  if (strange.peek()) return; // until there's a token
  try {
    await discover();
    trouble.value = "";
  } catch (error) {
    if (error instanceof Refusal && error.code === 403 && !token.peek()) strange.value = true; // it's let in as nobody
    trouble.value = strange.peek() ? "" : messageOf(error);
  }
}

function Page() {
  const { view } = route.value;
  const current = views.find((v) => v.name === view);
  useEffect(() => { document.title = `${current?.title ?? "Object"} · apiserver-lite`; }, [view]);
  const View = view === "object" ? ObjectView : current?.view;
  return (
    <>
      <header class="bar">
        <a class="brand" href="#/kinds" aria-label="apiserver-lite, kinds"><span class="mark" aria-hidden="true" />apiserver-lite</a>
        <nav aria-label="Views">
          {views.map((v) => <a key={v.name} href={`#/${v.name}`} title={v.keys} aria-current={v.name === view ? "page" : undefined}>{v.title}</a>)}
        </nav>
        <button type="button" class="jump" onClick={openPalette} aria-keyshortcuts="Control+K">Go to… <kbd>Ctrl K</kbd></button>
        <Shades />
      </header>
      {trouble.value && <p class="trouble" role="alert">{trouble.value} Trying again.</p>}
      <main id="main" tabIndex={-1}>
        {strange.value ? <SignIn onDone={look} />
          : kinds.value === undefined ? <p class="empty" role="status">Asking which kinds there are…</p>
          : View ? <View /> : <p class="empty">There is no view of this name.</p>}
      </main>
      <Palette />
      <Help />
      <Announcer />
    </>
  );
}

/** How long the first drawing waits for discovery, in ms: a frame without kinds would only delay the one that has them. */
const firstPatience = 60;

shade();
bindKeys();
setInterval(() => { if (document.visibilityState === "visible") void look(); }, discoverInterval);
void Promise.race([look(), new Promise((go) => setTimeout(go, firstPatience))]).then(() => render(<Page />, document.getElementById("app")!));
