package server_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/registry/builtin"
	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
	"github.com/apiserver-lite/apiserver-lite/storage"
)

// aged replaces a text in a stored object: so the object is as an older version may have stored it.
func aged(t *testing.T, s *servertest.Server, group, plural, namespace, name, from, to string) {
	t.Helper()
	key, err := storage.PrefixOf(group, plural).Key(namespace, name)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := server.Etcd(s.Server).Get(t.Context(), key)
	if err != nil || len(stored.Kvs) != 1 || !strings.Contains(string(stored.Kvs[0].Value), from) {
		t.Fatalf("%s has no %s in etcd: %v", key, from, err)
	}
	res, err := server.Etcd(s.Server).Put(t.Context(), key, strings.ReplaceAll(string(stored.Kvs[0].Value), from, to))
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the server has the old object", func() bool { return server.Position(s.Server) >= storage.Revision(res.Header.Revision) })
}

// sender sends requests and wants codes.
func sender(t *testing.T, s *servertest.Server) func(code int, method, path, body string) {
	return func(code int, method, path, body string) {
		t.Helper()
		contentType := "application/json"
		if method == http.MethodPatch {
			contentType = "application/merge-patch+json"
		}
		if res, text := s.Do(method, path, body, "Content-Type", contentType); res.StatusCode != code {
			t.Errorf("%s %s: %s %s, want %d", method, path, res.Status, text, code)
		}
	}
}

// TestOldPods: what pods and templates have that younger rules refuse stays allowed. New ones don't get it.
func TestOldPods(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) {
		s.API.Builtin, s.API.Controllers, s.Plugins.Disable = builtin.All, "none", []string{"RuntimeClass"} // which wants a pod's overhead to be a class'
	})
	const containers = `"containers":[{"name":"c","image":"i"}]`
	const term = `"labelSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["ok"]}]},"topologyKey":"z"`
	for _, test := range []struct{ name, spec, from, to string }{
		{"values of nodes' labels", `"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["ok"]}]}]}}},` + containers, `["ok"]`, `["-"]`},
		{"values of pods' labels", `"affinity":{"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{` + term + `}]}},` + containers, `["ok"]`, `["-"]`},
		{"values of namespaces' labels", `"affinity":{"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"topologyKey":"z","namespaceSelector":{"matchExpressions":[{"key":"a","operator":"In","values":["ok"]}]}}}]}},` + containers, `["ok"]`, `["-"]`},
		{"selectors of what is spread", `"topologySpreadConstraints":[{"maxSkew":1,"whenUnsatisfiable":"DoNotSchedule",` + term + `}],` + containers, `["ok"]`, `["-"]`},
		{"sysctls of the host's network", `"hostNetwork":true,"securityContext":{"sysctls":[{"name":"kernel.a","value":"1"}]},` + containers, "kernel.a", "net.a"},
		{"sysctls of the host's IPC", `"hostIPC":true,"securityContext":{"sysctls":[{"name":"kernel/a","value":"1"}]},` + containers, "kernel/a", "kernel/sem"},
		{"a token's path", `"serviceAccountName":"a","volumes":[{"name":"v","projected":{"sources":[{"serviceAccountToken":{"path":"ok","expirationSeconds":3600}}]}}],` + containers, `"path":"ok"`, `"path":"../ok"`},
		{"parts of huge pages", `"containers":[{"name":"c","image":"i","resources":{"limits":{"cpu":"1","hugepages-2Mi":"4Mi"},"requests":{"cpu":"1","hugepages-2Mi":"4Mi"}}}]`, "4Mi", "3Mi"},
		{"parts of huge pages as overhead", `"overhead":{"cpu":"1","hugepages-2Mi":"4Mi"},` + containers, "4Mi", "3Mi"},
		{"an image without a name", `"volumes":[{"name":"v","image":{"reference":"j","pullPolicy":"Always"}}],` + containers, `"reference":"j"`, `"reference":""`},
		{"devices of a user namespace", `"hostUsers":true,"volumes":[{"name":"v","persistentVolumeClaim":{"claimName":"a"}}],"containers":[{"name":"c","image":"i","volumeDevices":[{"name":"v","devicePath":"/d"}]}]`, `"hostUsers":true`, `"hostUsers":false`},
		{"the host's network in a user namespace", `"hostUsers":true,"hostNetwork":true,` + containers, `"hostUsers":true`, `"hostUsers":false`},
		{"an init container that a resize restarts", `"initContainers":[{"name":"i","image":"i","resizePolicy":[{"resourceName":"cpu","restartPolicy":"NotRequired"}]}],` + containers, "NotRequired", "RestartContainer"},
		{"an administrator without escalation", `"containers":[{"name":"c","image":"i","securityContext":{"allowPrivilegeEscalation":true,"capabilities":{"add":["CAP_SYS_ADMIN"]}}}]`, `Escalation":true`, `Escalation":false`},
		{"tolerations that compare", `"tolerations":[{"key":"a","operator":"Equal","value":"5"}],` + containers, `"operator":"Equal"`, `"operator":"Gt"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			send, old := sender(t, s), strings.ReplaceAll(test.spec, test.from, test.to)
			const pods, deployments = "/api/v1/namespaces/default/pods", "/apis/apps/v1/namespaces/default/deployments"
			pod := func(spec string) string { return `{"metadata":{"name":"o"},"spec":{` + spec + `}}` }
			send(http.StatusUnprocessableEntity, http.MethodPost, pods, pod(old))
			send(http.StatusCreated, http.MethodPost, pods, pod(test.spec))
			aged(t, s, "", "pods", "default", "o", test.from, test.to)
			send(http.StatusOK, http.MethodPatch, pods+"/o", `{"spec":{"activeDeadlineSeconds":9}}`)
			send(http.StatusUnprocessableEntity, http.MethodPatch, pods+"/o", `{"spec":{"activeDeadlineSeconds":10}}`)
			send(http.StatusOK, http.MethodDelete, pods+"/o?gracePeriodSeconds=0", "")

			deployment := func(spec string) string {
				return `{"metadata":{"name":"o"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{` + spec + `}}}}`
			}
			send(http.StatusUnprocessableEntity, http.MethodPost, deployments, deployment(old))
			send(http.StatusCreated, http.MethodPost, deployments, deployment(test.spec))
			send(http.StatusUnprocessableEntity, http.MethodPatch, deployments+"/o", `{"spec":{"template":{"spec":{`+old+`}}}}`)
			aged(t, s, "apps", "deployments", "default", "o", test.from, test.to)
			send(http.StatusOK, http.MethodPatch, deployments+"/o", `{"spec":{"template":{"metadata":{"annotations":{"a":"b"}}}}}`)
			send(http.StatusOK, http.MethodPatch, deployments+"/o", `{"spec":{"template":{"spec":{`+test.spec+`}}}}`)
			send(http.StatusUnprocessableEntity, http.MethodPatch, deployments+"/o", `{"spec":{"template":{"spec":{`+old+`}}}}`)
			send(http.StatusOK, http.MethodDelete, deployments+"/o", "")
		})
	}
}

// TestOldObjects: what else objects have that younger rules refuse stays allowed, too.
func TestOldObjects(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin, s.API.Controllers = builtin.All, "none" })
	const template = `"template":{"metadata":{"labels":{"a":"ok"}},"spec":{"containers":[{"name":"c","image":"i"}]`
	const selector = `"selector":{"matchExpressions":[{"key":"a","operator":"In","values":["ok"]}]}`
	for _, test := range []struct{ name, group, plural, body, from, to, change string }{
		{"a pod's cost of deletion", "", "pods", `"metadata":{"name":"o","annotations":{"controller.kubernetes.io/pod-deletion-cost":"7"}},"spec":{"containers":[{"name":"c","image":"i"}]}`, `cost":"7"`, `cost":"07"`, `{"spec":{"activeDeadlineSeconds":9}}`},
		{"a template's cost of deletion", "", "podtemplates", `"metadata":{"name":"o"},"template":{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"7"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, `cost":"7"`, `cost":"07"`, `{"template":{"metadata":{"labels":{"a":"b"}}}}`},
		{"a DaemonSet's selector", "apps", "daemonsets", `"metadata":{"name":"o"},"spec":{` + selector + `,` + template + `}}}`, `"values":["ok"]`, `"values":["-"]`, `{"spec":{"minReadySeconds":9}}`},
		{"a Job's selector", "batch", "jobs", `"metadata":{"name":"o"},"spec":{"manualSelector":true,` + selector + `,` + template + `,"restartPolicy":"Never"}}}`, `"values":["ok"]`, `"values":["-"]`, `{"spec":{"suspend":true}}`},
		{"a claim's selector", "", "persistentvolumeclaims", `"metadata":{"name":"o"},"spec":{` + selector + `,"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`, `"values":["ok"]`, `"values":["-"]`, `{"metadata":{"labels":{"a":"b"}}}`},
		{"a claim's source", "", "persistentvolumeclaims", `"metadata":{"name":"o"},"spec":{"dataSourceRef":{"apiGroup":"ok","kind":"K","name":"n"},"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`, `"apiGroup":"ok"`, `"apiGroup":"_"`, `{"metadata":{"labels":{"a":"b"}}}`},
		{"a capacity's nodes", "storage.k8s.io", "csistoragecapacities", `"metadata":{"name":"o"},"storageClassName":"c","nodeTopology":{"matchExpressions":[{"key":"a","operator":"In","values":["ok"]}]}`, `["ok"]`, `["-"]`, `{"capacity":"1Gi"}`},
		{"a budget's selector", "policy", "poddisruptionbudgets", `"metadata":{"name":"o"},"spec":{` + selector + `}`, `["ok"]`, `["-"]`, `{"spec":{"minAvailable":1}}`},
		{"a volume's nodes", "", "persistentvolumes", `"metadata":{"name":"o"},"spec":{"accessModes":["ReadWriteOnce"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/a"},"nodeAffinity":{"required":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["ok"]}]}]}}}`, `"values":["ok"]`, `"values":["-"]`, `{"metadata":{"labels":{"a":"b"}}}`},
		{"a device class's resource", "resource.k8s.io", "deviceclasses", `"metadata":{"name":"o"},"spec":{"extendedResourceName":"example.com/ok"}`, `example.com/ok`, `example.com/_`, `{"spec":{"selectors":[{"cel":{"expression":"true"}}]}}`},
		{"a device class's parameters", "resource.k8s.io", "deviceclasses", `"metadata":{"name":"o"},"spec":{"config":[{"opaque":{"driver":"d","parameters":{"a":"ok"}}}]}`, `"ok"`, `"` + strings.Repeat("a", 10<<10) + `"`, `{"spec":{"selectors":[{"cel":{"expression":"true"}}]}}`},
		{"a slice's counters", "resource.k8s.io", "resourceslices", `"metadata":{"name":"o"},"spec":{"driver":"d","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},"sharedCounters":[{"name":"c","counters":{"ok":{"value":"1"}}}]}`, `"ok"`, `"_"`,
			`{"spec":{"sharedCounters":[{"name":"c","counters":{"_":{"value":"2"},"other":{"value":"1"}}}]}}`},
		{"a slice's devices", "resource.k8s.io", "resourceslices", `"metadata":{"name":"o"},"spec":{"driver":"d","nodeName":"n","pool":{"name":"p","generation":1,"resourceSliceCount":1},"devices":[{"name":"d","attributes":{"a":{"int":1}}}]}`, `{"int":1}`, `{"int":1,"bool":true}`, `{"spec":{"pool":{"generation":2}}}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := s.In(t)
			send, namespace := sender(t, s), "default"
			path := "/api/v1/namespaces/default/" + test.plural
			switch {
			case test.group == "resource.k8s.io":
				path, namespace = "/apis/resource.k8s.io/v1/"+test.plural, ""
			case test.group != "":
				path = "/apis/" + test.group + "/v1/namespaces/default/" + test.plural
			case test.plural == "persistentvolumes":
				path, namespace = "/api/v1/"+test.plural, ""
			}
			send(http.StatusUnprocessableEntity, http.MethodPost, path, strings.ReplaceAll("{"+test.body+"}", test.from, test.to))
			send(http.StatusCreated, http.MethodPost, path, "{"+test.body+"}")
			aged(t, s, test.group, test.plural, namespace, "o", test.from, test.to)
			send(http.StatusOK, http.MethodPatch, path+"/o", test.change)
			send(http.StatusOK, http.MethodDelete, path+"/o?gracePeriodSeconds=0", "")
		})
	}
}

// TestSuspendedJob: of a suspended Job that nothing runs of any more the template may change as before its start.
func TestSuspendedJob(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin, s.API.Controllers = builtin.All, "none" })
	send := sender(t, s)
	const jobs = "/apis/batch/v1/namespaces/default/jobs"
	send(http.StatusCreated, http.MethodPost, jobs, `{"metadata":{"name":"j"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}`)
	for _, step := range []struct {
		path, patch string
		code        int
	}{
		{"/status", `{"status":{"startTime":"2026-01-01T00:00:00Z","active":1}}`, http.StatusOK},
		{"", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, http.StatusUnprocessableEntity},
		{"", `{"spec":{"suspend":true}}`, http.StatusOK},
		{"", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, http.StatusUnprocessableEntity},
		{"/status", `{"status":{"conditions":[{"type":"Suspended","status":"True"}]}}`, http.StatusOK},
		{"", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, http.StatusUnprocessableEntity},
		{"/status", `{"status":{"active":0}}`, http.StatusOK},
		{"", `{"spec":{"template":{"spec":{"nodeSelector":{"a":"b"}}}}}`, http.StatusOK},
		{"", `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`, http.StatusUnprocessableEntity},
	} {
		send(step.code, http.MethodPatch, jobs+"/j"+step.path, step.patch)
	}
}

// TestOldDevices: what a driver has said of a device isn't looked at again when it says more of it.
func TestOldDevices(t *testing.T) {
	s := servertest.New(t, func(s *server.Server) { s.API.Builtin, s.API.Controllers = builtin.All, "none" })
	send := sender(t, s)
	const claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
	said := func(address, more string) string {
		return `{"status":{"devices":[{"driver":"d","pool":"p","device":"x","networkData":{` + more + `"hardwareAddress":"` + address + `"}}]}}`
	}
	long := strings.Repeat("a", 129)
	send(http.StatusCreated, http.MethodPost, claims, `{"metadata":{"name":"c"},"spec":{"devices":{"requests":[{"name":"r","exactly":{"deviceClassName":"c"}}]}}}`)
	send(http.StatusOK, http.MethodPatch, claims+"/c/status", `{"status":{"allocation":{"devices":{"results":[{"request":"r","driver":"d","pool":"p","device":"x"}]}}}}`)
	send(http.StatusUnprocessableEntity, http.MethodPatch, claims+"/c/status", said(long, ""))
	send(http.StatusOK, http.MethodPatch, claims+"/c/status", said("ok", ""))
	aged(t, s, "resource.k8s.io", "resourceclaims", "default", "c", `"ok"`, `"`+long+`"`)
	send(http.StatusOK, http.MethodPatch, claims+"/c/status", said(long, `"interfaceName":"eth0",`))
	send(http.StatusUnprocessableEntity, http.MethodPatch, claims+"/c/status", said(long+"a", ""))
}
