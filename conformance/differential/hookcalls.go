package main

import (
	"maps"
	"strconv"
)

const callsNamespace = "hook-calls"

// callScenario has webhooks say what they're asked, and be asked or not, by rules, versions, subresources, selectors and conditions.
func callScenario() scenario {
	m := &hookMaker{scenario{name: "webhooks-calls", alone: true}}
	m.send("setup/namespace", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"`+callsNamespace+`"}}`)
	m.define("things", "Thing", "None")
	m.send("setup/account", "POST", "/api/v1/namespaces/"+callsNamespace+"/serviceaccounts", `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"hooked"}}`)
	m.conditions()
	m.selectors()
	m.policies()
	m.again()
	m.parts()
	m.deletions()
	m.undefine("things")
	return m.scenario
}

// hooked is a body of a kind, with metadata besides its name, and members.
func hooked(apiVersion, kind, name string, metadata, members map[string]any) string {
	all := map[string]any{"name": name}
	maps.Copy(all, metadata)
	o := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": all}
	maps.Copy(o, members)
	return text(o)
}

// labelled is metadata that selects a webhook.
func labelled(kind, name string) map[string]any {
	return map[string]any{"labels": map[string]any{"hook": hookLabel(kind, name)}}
}

// with configures a webhook, sends requests while it's there, and takes it away.
func (m *hookMaker) with(kind, name string, each []map[string]any, requests func()) {
	m.configureIn(callsNamespace, kind, name, each...)
	m.add(step{name: "setup/effect " + kind + " " + name, method: untilEffect, path: "/"})
	requests()
	m.endIn(callsNamespace, kind, name)
	m.add(step{name: "end/effect " + kind + " " + name, method: untilEffect, path: "/"})
}

// conditions have webhooks that allow nothing where their conditions hold.
func (m *hookMaker) conditions() {
	path := "/api/v1/namespaces/" + callsNamespace + "/configmaps?dryRun=All"
	var asks []func()
	for _, kind := range []string{"Validating", "Mutating"} {
		for _, c := range []struct {
			name        string
			expressions []string
		}{
			{"true", []string{"object.data['a'] == 'b'"}},
			{"false", []string{"object.data['a'] == 'c'"}},
			{"fails", []string{"object.data['none'] == 'b'"}},
			{"false-then-fails", []string{"object.data['a'] == 'c'", "object.data['none'] == 'b'"}},
			{"fails-then-false", []string{"object.data['none'] == 'b'", "object.data['a'] == 'c'"}},
			{"true-then-fails", []string{"true", "object.data['none'] == 'b'"}},
			{"fail-twice", []string{"object.data['none'] == 'b'", "object.spec == 'b'"}},
			{"old", []string{"oldObject == null"}},
			{"old-fails", []string{"oldObject.metadata.name == 'a'"}},
			{"request", []string{"request.operation == 'CREATE' && request.dryRun && request.userInfo.username != ''", "request.options.kind == 'CreateOptions'"}},
			{"authorizer", []string{"authorizer.group('').resource('configmaps').namespace('" + callsNamespace + "').check('create').allowed()"}},
			{"authorizer-other", []string{"authorizer.requestResource.check('unknown').allowed()"}},
			{"no-bool", []string{"dyn(1)"}},
			{"costly", []string{"'aaaaaaaaaa'.matches('(a+)+$') && [1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, a + b + c + d + e + f > 0))))))"}},
		} {
			var all []any
			for i, e := range c.expressions {
				all = append(all, map[string]any{"name": "c" + string(rune('0'+i)), "expression": e})
			}
			var each []map[string]any
			for _, failure := range []string{"Fail", "Ignore"} {
				each = append(each, map[string]any{"matchConditions": all, "clientConfig": hookClient("deny"), "failurePolicy": failure,
					"objectSelector": map[string]any{"matchLabels": map[string]any{"hook": hookLabel(kind, c.name), "failure": failure}}})
			}
			m.configureIn(callsNamespace, kind, c.name, each...)
			asks = append(asks, func() {
				for _, failure := range []string{"Fail", "Ignore"} {
					m.send("condition "+kind+"/"+c.name+" "+failure, "POST", path, hooked("v1", "ConfigMap", "a", map[string]any{"labels": map[string]any{"hook": hookLabel(kind, c.name), "failure": failure}}, map[string]any{"data": map[string]any{"a": "b"}}))
				}
				m.endIn(callsNamespace, kind, c.name)
			})
		}
	}
	m.askAll(asks)
}

// askAll has the webhooks in effect, and then asks.
func (m *hookMaker) askAll(asks []func()) {
	m.add(step{name: "setup/effect " + strconv.Itoa(len(m.steps)), method: untilEffect, path: "/"})
	for _, ask := range asks {
		ask()
	}
}

// selectors have webhooks that allow nothing that they select.
func (m *hookMaker) selectors() {
	expression := func(key, operator string, values ...string) map[string]any {
		e := map[string]any{"key": key, "operator": operator}
		if len(values) > 0 {
			e["values"] = values
		}
		return map[string]any{"matchExpressions": []any{e}}
	}
	path := "/api/v1/namespaces/" + callsNamespace + "/configmaps"
	name := "kubernetes.io/metadata.name"
	here := map[string]any{"matchLabels": map[string]any{name: callsNamespace}}
	for _, c := range []struct {
		name string
		hook map[string]any
	}{
		{"object-in", map[string]any{"objectSelector": expression("pick", "In", "a", "b")}},
		{"object-not-in", map[string]any{"objectSelector": expression("pick", "NotIn", "a")}},
		{"object-exists", map[string]any{"objectSelector": expression("pick", "Exists")}},
		{"object-missing", map[string]any{"objectSelector": expression("pick", "DoesNotExist")}},
		{"namespace-not-in", map[string]any{"objectSelector": expression("pick", "Exists"), "namespaceSelector": expression(name, "NotIn", callsNamespace)}},
		{"namespace-missing", map[string]any{"objectSelector": expression("pick", "Exists"), "namespaceSelector": expression("none", "DoesNotExist")}},
		{"scope-cluster", map[string]any{"objectSelector": expression("pick", "Exists"), "rules": []any{scoped("Cluster", "*")}}},
		{"scope-namespaced", map[string]any{"objectSelector": expression("pick", "Exists"), "rules": []any{scoped("Namespaced", "*")}}},
		{"update-only", map[string]any{"objectSelector": expression("pick", "Exists"), "rules": []any{rule("UPDATE", []string{""}, "v1", "configmaps")}}},
	} {
		hook := map[string]any{"clientConfig": hookClient("deny"), "namespaceSelector": here}
		maps.Copy(hook, c.hook)
		m.send("selector "+c.name+"/before", "POST", path, hooked("v1", "ConfigMap", "old-"+c.name, map[string]any{"labels": map[string]any{"pick": "a"}}, nil))
		m.with("Validating", c.name, []map[string]any{hook}, func() {
			for _, pick := range []string{"a", "c"} {
				m.send("selector "+c.name+"/create "+pick, "POST", path+"?dryRun=All", hooked("v1", "ConfigMap", "a", map[string]any{"labels": map[string]any{"pick": pick}}, nil))
			}
			m.send("selector "+c.name+"/create", "POST", path+"?dryRun=All", hooked("v1", "ConfigMap", "a", nil, nil))
			m.send("selector "+c.name+"/update c", "PUT", path+"/old-"+c.name+"?dryRun=All", hooked("v1", "ConfigMap", "old-"+c.name, map[string]any{"labels": map[string]any{"pick": "c"}}, nil))
			m.send("selector "+c.name+"/update", "PUT", path+"/old-"+c.name+"?dryRun=All", hooked("v1", "ConfigMap", "old-"+c.name, nil, nil))
			m.send("selector "+c.name+"/namespace", "POST", "/api/v1/namespaces?dryRun=All", hooked("v1", "Namespace", "hook-none", map[string]any{"labels": map[string]any{"pick": "a"}}, nil))
			m.send("selector "+c.name+"/own namespace", "PUT", "/api/v1/namespaces/"+callsNamespace+"?dryRun=All", hooked("v1", "Namespace", callsNamespace, map[string]any{"labels": map[string]any{"pick": "a"}}, nil))
			m.send("selector "+c.name+"/role", "POST", "/apis/rbac.authorization.k8s.io/v1/clusterroles?dryRun=All", hooked("rbac.authorization.k8s.io/v1", "ClusterRole", "hook-none", map[string]any{"labels": map[string]any{"pick": "a"}}, nil))
		})
	}
}

// scoped is a rule about everything of a scope.
func scoped(scope, resources string) map[string]any {
	r := rule("*", []string{"*"}, "*", resources)
	r["scope"] = scope
	return r
}

// policies have webhooks that say what they're asked of an object in another version than that of the request.
func (m *hookMaker) policies() {
	things, scalers := "/namespaces/"+callsNamespace+"/things", "/namespaces/"+callsNamespace+"/horizontalpodautoscalers"
	scaler := map[string]any{"spec": map[string]any{"maxReplicas": 2, "scaleTargetRef": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}}}
	var asks []func()
	event := map[string]any{"involvedObject": map[string]any{"kind": "Pod", "namespace": callsNamespace, "name": "a"}, "reason": "r", "type": "Normal"}
	for _, kind := range []string{"Validating", "Mutating"} {
		for _, policy := range []string{"Exact", "Equivalent"} {
			name := map[string]string{"Exact": "exact", "Equivalent": "equivalent"}[policy]
			m.configureIn(callsNamespace, kind, name, map[string]any{"clientConfig": hookClient("echo"), "matchPolicy": policy, "rules": []any{
				rule("*", []string{hookedGroup}, "v1", "things"), rule("*", []string{"autoscaling"}, "v1", "horizontalpodautoscalers"), rule("*", []string{"events.k8s.io"}, "v1", "events")}})
			asks = append(asks, func() {
				begin, meta := "version "+kind+" "+policy+"/", labelled(kind, name)
				m.send(begin+"same", "POST", "/apis/"+hookedGroup+"/v1"+things+"?dryRun=All", hooked(hookedGroup+"/v1", "Thing", "a", meta, map[string]any{"data": map[string]any{"x": "y"}}))
				m.send(begin+"other", "POST", "/apis/"+hookedGroup+"/v2"+things+"?dryRun=All", hooked(hookedGroup+"/v2", "Thing", "a", meta, map[string]any{"data": map[string]any{"x": "y"}}))
				m.send(begin+"built-in", "POST", "/apis/autoscaling/v1"+scalers+"?dryRun=All", hooked("autoscaling/v1", "HorizontalPodAutoscaler", "a", meta, scaler))
				m.send(begin+"built-in other", "POST", "/apis/autoscaling/v2"+scalers+"?dryRun=All", hooked("autoscaling/v2", "HorizontalPodAutoscaler", "a", meta, scaler))
				m.send(begin+"other group", "POST", "/api/v1/namespaces/"+callsNamespace+"/events?dryRun=All", hooked("v1", "Event", "a", meta, event))
			})
		}
	}
	m.configureIn(callsNamespace, "Mutating", "equivalent-patch", map[string]any{"clientConfig": hookClient("patch"), "rules": []any{rule("*", []string{hookedGroup}, "v1", "things"), rule("*", []string{"autoscaling"}, "v1", "horizontalpodautoscalers")}})
	m.askAll(append(asks, func() {
		meta := labelled("Mutating", "equivalent-patch")
		m.send("version patched/other", "POST", "/apis/"+hookedGroup+"/v2"+things+"?dryRun=All", hooked(hookedGroup+"/v2", "Thing", "a", meta, nil))
		m.send("version patched/built-in other", "POST", "/apis/autoscaling/v2"+scalers+"?dryRun=All", hooked("autoscaling/v2", "HorizontalPodAutoscaler", "a", meta, scaler))
	}))
}

// again has webhooks that leave their traces, in which order they're called and how often.
func (m *hookMaker) again() {
	path := "/api/v1/namespaces/" + callsNamespace + "/configmaps"
	var asks []func()
	tracing := func(words ...string) (each []map[string]any) { // a capital wants to be called again
		for _, w := range words {
			policy := "Never"
			if w < "a" {
				policy = "IfNeeded"
			}
			each = append(each, map[string]any{"clientConfig": hookClient("trace/" + w), "reinvocationPolicy": policy})
		}
		return each
	}
	for _, c := range []struct {
		name  string
		words []string
	}{
		{"never", []string{"a", "b"}}, {"first", []string{"A", "b"}}, {"last", []string{"a", "B"}}, {"both", []string{"A", "B"}}, {"one", []string{"A"}}, {"middle", []string{"a", "B", "c"}}, {"three", []string{"A", "B", "C"}},
	} {
		meta := labelled("Mutating", "again-"+c.name)
		meta["annotations"] = map[string]any{"trace": ""}
		m.send("again "+c.name+"/before", "POST", path, hooked("v1", "ConfigMap", "again-"+c.name, nil, nil))
		m.configureIn(callsNamespace, "Mutating", "again-"+c.name, tracing(c.words...)...)
		asks = append(asks, func() {
			m.send("again "+c.name+"/create", "POST", path+"?dryRun=All", hooked("v1", "ConfigMap", "a", meta, nil))
			m.send("again "+c.name+"/update", "PUT", path+"/again-"+c.name, hooked("v1", "ConfigMap", "again-"+c.name, meta, nil))
		})
	}
	name := "again-two"
	meta := labelled("Mutating", name)
	meta["annotations"] = map[string]any{"trace": ""}
	second := tracing("b")[0]
	second["objectSelector"] = map[string]any{"matchLabels": map[string]any{"hook": hookLabel("Mutating", name)}}
	m.configureIn(callsNamespace, "Mutating", name, tracing("A")...)
	m.configureIn(callsNamespace, "Mutating", name+"-second", second)
	m.askAll(append(asks, func() {
		m.send("again two/create", "POST", path+"?dryRun=All", hooked("v1", "ConfigMap", "a", meta, nil))
	}))
}

// parts have webhooks that say what they're asked at subresources.
func (m *hookMaker) parts() {
	pods, things := "/api/v1/namespaces/"+callsNamespace+"/pods", "/apis/"+hookedGroup+"/v1/namespaces/"+callsNamespace+"/things"
	accounts := "/api/v1/namespaces/" + callsNamespace + "/serviceaccounts"
	m.send("part before/pod", "POST", pods, hooked("v1", "Pod", "p", nil, map[string]any{"spec": map[string]any{"serviceAccountName": "hooked", "automountServiceAccountToken": false, "containers": []any{map[string]any{"name": "c", "image": "i"}}}}))
	m.send("part before/thing", "POST", things, hooked(hookedGroup+"/v1", "Thing", "t", nil, map[string]any{"spec": map[string]any{"replicas": 1}}))
	patch := func(name, path, body string) {
		m.add(step{name: name, method: "PATCH", path: path, body: body, header: map[string]string{"Content-Type": mergePatch}})
	}
	for _, kind := range []string{"Validating", "Mutating"} {
		for _, c := range []struct {
			name      string
			resources []string
		}{
			{"whole", []string{"pods", "things", "serviceaccounts"}}, {"each", []string{"pods/*", "things/*", "serviceaccounts/*"}}, {"status", []string{"*/status"}}, {"all", []string{"*/*"}},
		} {
			hook := map[string]any{"clientConfig": hookClient("echo"), "objectSelector": map[string]any{}, "rules": []any{rule("*", []string{"", hookedGroup}, "*", c.resources...)}}
			m.with(kind, "part-"+c.name, []map[string]any{hook}, func() {
				begin := "part " + kind + " " + c.name + "/"
				m.send(begin+"status PUT", "PUT", things+"/t/status?dryRun=All", hooked(hookedGroup+"/v1", "Thing", "t", map[string]any{"resourceVersion": "${rv:t}"}, map[string]any{"status": map[string]any{"replicas": 3}}))
				patch(begin+"status PATCH", things+"/t/status?dryRun=All", `{"status":{"replicas":4}}`)
				m.send(begin+"scale PUT", "PUT", things+"/t/scale?dryRun=All", hooked("autoscaling/v1", "Scale", "t", map[string]any{"namespace": callsNamespace}, map[string]any{"spec": map[string]any{"replicas": 3}}))
				patch(begin+"scale PATCH", things+"/t/scale?dryRun=All", `{"spec":{"replicas":4}}`)
				patch(begin+"pod status", pods+"/p/status?dryRun=All", `{"status":{"message":"m"}}`)
				patch(begin+"ephemeralcontainers", pods+"/p/ephemeralcontainers?dryRun=All", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i"}]}}`)
				patch(begin+"resize", pods+"/p/resize?dryRun=All", `{"spec":{"containers":[{"name":"c","image":"i","resources":{"requests":{"cpu":"1m"}}}]}}`)
				m.send(begin+"eviction", "POST", pods+"/p/eviction?dryRun=All", hooked("policy/v1", "Eviction", "p", nil, map[string]any{"deleteOptions": map[string]any{"gracePeriodSeconds": 1}}))
				m.send(begin+"binding", "POST", pods+"/p/binding?dryRun=All", hooked("v1", "Binding", "p", nil, map[string]any{"target": map[string]any{"kind": "Node", "name": "n"}}))
				m.send(begin+"token", "POST", accounts+"/hooked/token?dryRun=All", hooked("authentication.k8s.io/v1", "TokenRequest", "hooked", nil, map[string]any{"spec": map[string]any{"audiences": []string{"a"}}}))
			})
		}
	}
}

// deletions have webhooks that say what they're asked when objects are deleted.
func (m *hookMaker) deletions() {
	path := "/api/v1/namespaces/" + callsNamespace + "/configmaps"
	var asks []func()
	for _, kind := range []string{"Validating", "Mutating"} {
		for _, behaviour := range []string{"echo", "allow", "deny", "patch", "warn"} {
			name := "delete-" + behaviour
			m.send("delete "+kind+" "+behaviour+"/before", "POST", path, hooked("v1", "ConfigMap", hookLabel(kind, name), labelled(kind, name), nil))
			m.configureIn(callsNamespace, kind, name, map[string]any{"clientConfig": hookClient(behaviour)})
			asks = append(asks, func() {
				m.send("delete "+kind+" "+behaviour+"/collection dry run", "DELETE", path+"?dryRun=All&labelSelector=hook%3D"+hookLabel(kind, name), "")
				m.send("delete "+kind+" "+behaviour+"/collection", "DELETE", path+"?labelSelector=hook%3D"+hookLabel(kind, name), "")
				m.send("delete "+kind+" "+behaviour+"/one", "DELETE", path+"/"+hookLabel(kind, name), `{"apiVersion":"v1","kind":"DeleteOptions","propagationPolicy":"Background","gracePeriodSeconds":3}`)
			})
		}
	}
	m.askAll(asks)
}
