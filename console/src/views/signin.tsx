// Asks for the token, where the server doesn't know the user otherwise.
import { useEffect, useRef, useState } from "preact/hooks";
import { call, messageOf, strange, token } from "../api/client";

export function SignIn({ onDone }: { onDone: () => void }) {
  const [wrong, setWrong] = useState("");
  const [asking, setAsking] = useState(false);
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current!.focus(), []); // a browser heeds autofocus once for each page
  const submit = async (e: SubmitEvent) => {
    e.preventDefault();
    const typed = field.current!;
    setAsking(true);
    token.value = typed.value.trim();
    try {
      await call("/api");
      typed.value = "";
      strange.value = false;
      onDone();
    } catch (error) {
      token.value = "";
      typed.select();
      setWrong(`The server refuses this token: ${messageOf(error)}`);
    }
    setAsking(false);
  };
  return (
    <form class="signin" onSubmit={submit}>
      <h1>Who are you?</h1>
      <p>This server asks for a credential. Give a bearer token, or come with a client certificate in the browser.</p>
      <label>Token <input type="password" ref={field} required autocomplete="off" spellcheck={false} aria-describedby="token-note" /></label>
      <p id="token-note" class="quiet">It stays in this page's memory: not in storage, not in the address. A reload forgets it.</p>
      {wrong && <p class="wrong" role="alert">{wrong}</p>}
      <button type="submit" class="main" disabled={asking}>Go on</button>
    </form>
  );
}
