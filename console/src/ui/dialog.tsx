// A dialog over the page, which Escape closes. The browser keeps the focus in it and gives it back.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog(p: { label: string; class?: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    ref.current!.showModal();
    return () => ref.current?.close();
  }, []);
  return (
    <dialog ref={ref} class={p.class} aria-label={p.label} onClose={p.onClose} onCancel={p.onClose}
      onClick={(e) => { if (e.target === ref.current) p.onClose(); }}>
      {p.children}
    </dialog>
  );
}
