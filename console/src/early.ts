// Asks which kinds there are while the page's own script is still on its way: a script of its own, which runs first.
{
  const paths = ["/api?pretty=false", "/apis?pretty=false"];
  const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
  const answers = paths.map((path) => fetch(path, { headers: { Accept: accept }, credentials: "same-origin", redirect: "error" }));
  for (const answer of answers) answer.catch(() => {}); // who takes it is told
  globalThis.discovery = { paths, accept, answers };
}
