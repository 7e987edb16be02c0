// What programs do with @kubernetes/client-node: create, read, change, list and delete objects, watch, and informers, and a WebSocket.
// TestNode runs it with KUBECONFIG. At a line "restart" on standard output the test restarts the server, and then writes a
// line to standard input.
import assert from 'node:assert/strict';
import { createInterface } from 'node:readline';
import WebSocket from 'ws';
import * as k8s from '@kubernetes/client-node';

const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);
const custom = config.makeApiClient(k8s.CustomObjectsApi);
const objects = k8s.KubernetesObjectApi.makeApiClient(config);

const widgets = { group: 'example.com', version: 'v1', namespace: 'default', plural: 'widgets' };
const widget = (name, size) => ({
  apiVersion: 'example.com/v1', kind: 'Widget', metadata: { name, labels: { tier: 'front' } }, spec: { size, color: 'red' },
});
const mergePatch = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch);
const codeOf = (error) => error.code ?? error.statusCode;

// until waits for a condition; the test's own patience ends what never comes.
async function until(what, condition) {
  for (let i = 0; !condition(); i++) {
    if (i % 500 === 499) console.error(`still waiting until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function crud() {
  const created = await core.createNamespacedConfigMap({ namespace: 'default', body: { metadata: { name: 'settings' }, data: { a: '1' } } });
  assert.equal(created.data.a, '1');
  assert.ok(created.metadata.creationTimestamp instanceof Date);
  await assert.rejects(core.createNamespacedConfigMap({ namespace: 'default', body: { metadata: { name: 'settings' } } }), (e) => codeOf(e) === 409);
  created.data.b = '2';
  const replaced = await core.replaceNamespacedConfigMap({ name: 'settings', namespace: 'default', body: created });
  assert.deepEqual(replaced.data, { a: '1', b: '2' });
  await assert.rejects(core.replaceNamespacedConfigMap({ name: 'settings', namespace: 'default', body: created }), (e) => codeOf(e) === 409);
  const strategic = k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.StrategicMergePatch);
  const patched = await core.patchNamespacedConfigMap({ name: 'settings', namespace: 'default', body: { data: { a: null } } }, strategic);
  assert.deepEqual(patched.data, { b: '2' });
  const list = await core.listNamespacedConfigMap({ namespace: 'default', fieldSelector: 'metadata.name=settings' });
  assert.deepEqual(list.items.map((i) => i.metadata.name), ['settings']);
  await core.deleteNamespacedConfigMap({ name: 'settings', namespace: 'default' });
  await assert.rejects(core.readNamespacedConfigMap({ name: 'settings', namespace: 'default' }), (e) => codeOf(e) === 404);
}

async function customObjects() {
  await custom.createNamespacedCustomObject({ ...widgets, body: widget('crud', 1) });
  const got = await custom.getNamespacedCustomObject({ ...widgets, name: 'crud' });
  assert.equal(got.spec.size, 1);
  const patched = await custom.patchNamespacedCustomObject({ ...widgets, name: 'crud', body: { spec: { size: 2 } } }, mergePatch);
  assert.equal(patched.spec.size, 2);
  const list = await custom.listNamespacedCustomObject({ ...widgets, labelSelector: 'tier=front' });
  assert.deepEqual(list.items.map((i) => i.metadata.name), ['crud']);
  await assert.rejects(custom.createNamespacedCustomObject({ ...widgets, body: widget('bad', 'large') }), (e) => codeOf(e) === 422);
  await custom.deleteNamespacedCustomObject({ ...widgets, name: 'crud' });
}

// anyObject is the client that takes whatever a YAML file has.
async function anyObject() {
  const [object] = k8s.loadAllYaml(k8s.dumpYaml({ ...widget('any', 1), metadata: { name: 'any', namespace: 'default' } }));
  await objects.create(object);
  const applied = await objects.patch({ ...object, spec: { size: 3, color: 'blue' } }, undefined, undefined, 'node', true, k8s.PatchStrategy.ServerSideApply);
  assert.equal(applied.spec.size, 3);
  assert.equal((await objects.read(object)).spec.color, 'blue');
  await objects.delete(object);
}

async function watch() {
  const seen = [];
  let ended = false;
  const controller = await new k8s.Watch(config).watch('/apis/example.com/v1/namespaces/default/widgets', { labelSelector: 'tier=front' },
    (type, object) => seen.push(`${type} ${object.metadata.name}`), () => { ended = true; });
  await custom.createNamespacedCustomObject({ ...widgets, body: widget('watched', 1) });
  await custom.patchNamespacedCustomObject({ ...widgets, name: 'watched', body: { metadata: { labels: { tier: 'back' } } } }, mergePatch);
  await until('the watch has both events', () => seen.length === 2);
  assert.deepEqual(seen, ['ADDED watched', 'DELETED watched']);
  controller.abort();
  await until('the watch ends', () => ended);
  await custom.deleteNamespacedCustomObject({ ...widgets, name: 'watched' });
}

// webSocket watches as a web page does: it has no headers to send, so its token is a subprotocol.
async function webSocket() {
  const { server, caData } = config.getCurrentCluster();
  const { token } = config.getCurrentUser();
  const protocols = ['base64.binary.k8s.io'];
  if (token) protocols.unshift(`base64url.bearer.authorization.k8s.io.${Buffer.from(token).toString('base64url')}`);
  const socket = new WebSocket(`${server.replace('http', 'ws')}/apis/example.com/v1/namespaces/default/widgets?watch=true&timeoutSeconds=5`,
    protocols, { ca: caData && Buffer.from(caData, 'base64'), origin: server });
  const seen = [];
  let closed;
  socket.on('message', (data, isBinary) => {
    assert.ok(!isBinary);
    const { type, object } = JSON.parse(data.toString());
    seen.push(`${type} ${object.metadata.name}`);
  });
  socket.on('close', (code) => { closed = code; });
  await until('the WebSocket is open', () => socket.readyState === WebSocket.OPEN);
  assert.equal(socket.protocol, 'base64.binary.k8s.io');
  await custom.createNamespacedCustomObject({ ...widgets, body: widget('socket', 1) });
  await custom.deleteNamespacedCustomObject({ ...widgets, name: 'socket' });
  await until('the WebSocket ends at its time', () => closed !== undefined);
  assert.deepEqual(seen, ['ADDED socket', 'DELETED socket']);
  assert.equal(closed, 1000);
}

// informer follows objects across a restart of the server.
async function informer() {
  await custom.createNamespacedCustomObject({ ...widgets, body: widget('first', 1) });
  const seen = [];
  const i = k8s.makeInformer(config, '/apis/example.com/v1/namespaces/default/widgets', () => custom.listNamespacedCustomObject(widgets));
  for (const event of ['add', 'update', 'delete']) {
    i.on(event, (object) => seen.push(`${event} ${object.metadata.name} ${object.spec.size}`));
  }
  let running = true;
  i.on('error', () => { if (running) setTimeout(() => i.start(), 100); }); // as its documentation says
  await i.start();
  await custom.patchNamespacedCustomObject({ ...widgets, name: 'first', body: { spec: { size: 2 } } }, mergePatch);
  await until('the informer sees an update', () => seen.includes('update first 2'));

  console.log('restart');
  await new Promise((resolve) => createInterface(process.stdin).once('line', function () { this.close(); resolve(); }));

  await custom.createNamespacedCustomObject({ ...widgets, body: widget('second', 1) });
  await custom.deleteNamespacedCustomObject({ ...widgets, name: 'first' });
  await until('the informer goes on', () => seen.includes('add second 1') && seen.includes('delete first 2'));
  assert.deepEqual(seen.filter((s) => s.startsWith('add')), ['add first 1', 'add second 1']);
  assert.deepEqual(i.list().map((o) => o.metadata.name), ['second']);
  running = false;
  await i.stop();
}

for (const test of [crud, customObjects, anyObject, watch, webSocket, informer]) {
  console.error(test.name);
  await test();
}
console.log('done');
process.exit(0); // idle connections would keep the process
