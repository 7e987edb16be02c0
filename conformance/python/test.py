"""What programs do with Python's kubernetes: create, read, change, list and delete objects, watch, and the dynamic client.

TestPython runs it with KUBECONFIG.
"""

import base64
import json
import ssl
import threading

import websocket
from kubernetes import client, config, dynamic, watch
from kubernetes.client.rest import ApiException

config.load_kube_config()
core = client.CoreV1Api()
custom = client.CustomObjectsApi()
WIDGETS = ("example.com", "v1", "default", "widgets")


def widget(name, size):
    return {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {"name": name, "labels": {"tier": "front"}},
        "spec": {"size": size, "color": "red"},
    }


def refused(code, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except ApiException as e:
        assert e.status == code, e
    else:
        raise AssertionError("it isn't refused")


def crud():
    body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name="settings"), data={"a": "1"})
    created = core.create_namespaced_config_map("default", body)
    assert created.data == {"a": "1"} and created.metadata.creation_timestamp.tzinfo, created
    refused(409, core.create_namespaced_config_map, "default", body)
    created.data["b"] = "2"
    replaced = core.replace_namespaced_config_map("settings", "default", created)
    assert replaced.data == {"a": "1", "b": "2"}, replaced
    refused(409, core.replace_namespaced_config_map, "settings", "default", created)
    patched = core.patch_namespaced_config_map("settings", "default", {"data": {"a": None}})
    assert patched.data == {"b": "2"}, patched
    listed = core.list_namespaced_config_map("default", field_selector="metadata.name=settings")
    assert [i.metadata.name for i in listed.items] == ["settings"], listed
    core.delete_namespaced_config_map("settings", "default")
    refused(404, core.read_namespaced_config_map, "settings", "default")


def custom_objects():
    custom.create_namespaced_custom_object(*WIDGETS, widget("crud", 1))
    assert custom.get_namespaced_custom_object(*WIDGETS, "crud")["spec"]["size"] == 1
    patched = custom.patch_namespaced_custom_object(*WIDGETS, "crud", {"spec": {"size": 2}})
    assert patched["spec"]["size"] == 2, patched
    listed = custom.list_namespaced_custom_object(*WIDGETS, label_selector="tier=front")
    assert [i["metadata"]["name"] for i in listed["items"]] == ["crud"], listed
    refused(422, custom.create_namespaced_custom_object, *WIDGETS, widget("bad", "large"))
    custom.delete_namespaced_custom_object(*WIDGETS, "crud")


def watched():
    w = watch.Watch()
    seen = []
    before = custom.list_namespaced_custom_object(*WIDGETS)["metadata"]["resourceVersion"]  # the writes may be done before the stream begins

    def write():
        custom.create_namespaced_custom_object(*WIDGETS, widget("watched", 1))
        custom.patch_namespaced_custom_object(*WIDGETS, "watched", {"spec": {"size": 2}})
        custom.delete_namespaced_custom_object(*WIDGETS, "watched")

    writer = threading.Thread(target=write)
    writer.start()
    for event in w.stream(custom.list_namespaced_custom_object, *WIDGETS, label_selector="tier=front", resource_version=before):
        seen.append(event["type"])
        if event["type"] == "DELETED":
            w.stop()
    writer.join()
    assert seen == ["ADDED", "MODIFIED", "DELETED"], seen

    # The next stream goes on where the first one ended; it ends at its time.
    version = w.resource_version
    core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="later")))
    names = [e["object"].metadata.name for e in watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version=version, timeout_seconds=1)]
    assert names == ["later"], names
    core.delete_namespaced_config_map("later", "default")


def expired():
    """A version of another store raises 410, once it has been tried again."""
    stream = watch.Watch().stream(custom.list_namespaced_custom_object, *WIDGETS, resource_version="999999999", timeout_seconds=30)
    refused(410, list, stream)


def web_socket():
    """Another client of WebSockets, which Python's kubernetes brings: it pings, and closes by itself."""
    c = client.Configuration.get_default_copy()
    token = next(iter(c.api_key.values()), "").removeprefix("Bearer ")
    protocols = ["binary.k8s.io"]
    if token:
        protocols.append("base64url.bearer.authorization.k8s.io." + base64.urlsafe_b64encode(token.encode()).decode().rstrip("="))
    ws = websocket.create_connection(
        c.host.replace("http", "ws", 1) + "/api/v1/watch/namespaces/default/configmaps?fieldSelector=metadata.name=socket",
        subprotocols=protocols, timeout=60, sslopt={"ca_certs": c.ssl_ca_cert, "cert_reqs": ssl.CERT_REQUIRED},
    )
    core.create_namespaced_config_map("default", client.V1ConfigMap(metadata=client.V1ObjectMeta(name="socket")))
    event = json.loads(ws.recv())
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "socket"), event
    ws.ping("are you there?")
    code, data = ws.recv_data(control_frame=True)
    assert (code, data) == (websocket.ABNF.OPCODE_PONG, b"are you there?"), (code, data)
    ws.close()
    core.delete_namespaced_config_map("socket", "default")


def dynamic_client():
    d = dynamic.DynamicClient(client.ApiClient())
    api = d.resources.get(api_version="example.com/v1", kind="Widget")
    api.create(body=widget("any", 1), namespace="default")
    applied = api.patch(
        body={"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "any"}, "spec": {"size": 3}},
        name="any", namespace="default", content_type="application/merge-patch+json",
    )
    assert applied.spec.size == 3, applied
    assert [i.metadata.name for i in api.get(namespace="default", label_selector="tier=front").items] == ["any"]
    for event in api.watch(namespace="default", timeout=30):
        assert (event["type"], event["object"].metadata.name) == ("ADDED", "any"), event
        break
    api.delete(name="any", namespace="default")
    maps = d.resources.get(api_version="v1", kind="ConfigMap")
    maps.create(body={"metadata": {"name": "any"}, "data": {"a": "1"}}, namespace="default")
    assert maps.get(name="any", namespace="default").data.a == "1"
    maps.delete(name="any", namespace="default")


for test in (crud, custom_objects, watched, expired, web_socket, dynamic_client):
    print(test.__name__, flush=True)
    test()
print("done")
