package builtin_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/apiserver-lite/apiserver-lite/internal/await"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

// TestCells shows objects as rows, as kube-apiserver's printers do. Ages are left out.
func TestCells(t *testing.T) {
	s := servertest.New(t, all)
	const (
		pods    = "/api/v1/namespaces/default/pods"
		podSpec = `{"containers":[{"name":"a","image":"i"},{"name":"b","image":"j"}],"initContainers":[{"name":"i","image":"i"},{"name":"s","image":"i","restartPolicy":"Always"}]}`
		started = `"initContainerStatuses":[{"name":"i","restartCount":5,"state":{"terminated":{"exitCode":0}}},{"name":"s","restartCount":1,"started":true,"ready":true,"state":{"running":{}}}]`
	)
	for _, test := range []struct{ name, path, spec, status, want string }{
		{"a pod that waits", pods, `"spec":` + podSpec, ``, "0/3 Pending 0 <none> <none> <none> <none>"},
		{"a pod behind a gate", pods, `"spec":` + podSpec, `{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"SchedulingGated"}]}`, "0/3 SchedulingGated 0 <none> <none> <none> <none>"},
		{"a pod whose init container fails", pods, `"spec":` + podSpec, `{"phase":"Pending","initContainerStatuses":[{"name":"i","restartCount":2,"state":{"terminated":{"exitCode":3}}}]}`,
			"0/3 Init:ExitCode:3 2 <none> <none> <none> <none>"},
		{"a pod that runs", pods, `"spec":` + podSpec, `{"phase":"Running","podIPs":[{"ip":"10.1.0.1"}],` + started + `,"containerStatuses":[{"name":"a","ready":true,"state":{"running":{}}},{"name":"b","restartCount":1,"state":{"waiting":{"reason":"CrashLoopBackOff"}}}]}`,
			"2/3 CrashLoopBackOff 2 10.1.0.1 <none> <none> <none>"},
		{"a pod half of which is done", pods, `"spec":` + podSpec, `{"phase":"Running","podIP":"10.1.0.2",` + started + `,"containerStatuses":[{"name":"a","state":{"terminated":{"exitCode":0,"reason":"Completed"}}},{"name":"b","ready":true,"state":{"running":{}}}]}`,
			"2/3 NotReady 1 10.1.0.2 <none> <none> <none>"},
		{"a service", "/api/v1/namespaces/default/services", `"spec":{"type":"LoadBalancer","clusterIP":"10.0.0.50","externalIPs":["192.0.2.9"],"selector":{"b":"c","a":"b"},"ports":[{"name":"x","port":80,"nodePort":30080},{"name":"y","port":53,"protocol":"UDP","nodePort":30053}]}`,
			`{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"},{"hostname":"example.com"}]}}`, "LoadBalancer 10.0.0.50 192.0.2.1,example.com,192.0.2.9 80:30080/TCP,53:30053/UDP a=b,b=c"},
		{"endpoints", "/api/v1/namespaces/default/endpoints", `"subsets":[{"addresses":[{"ip":"10.1.0.1"},{"ip":"10.1.0.2"}],"ports":[{"name":"a","port":80},{"name":"b","port":81}]}]`, ``,
			"10.1.0.1:80,10.1.0.2:80,10.1.0.1:81 + 1 more..."},
		{"a node", "/api/v1/nodes", `"metadata":{"name":"N","labels":{"node-role.kubernetes.io/worker":"","kubernetes.io/role":"agent"}},"spec":{"unschedulable":true}`, `{"conditions":[{"type":"Ready","status":"True"}]}`,
			"Ready,SchedulingDisabled agent,worker  <none> <none> <unknown> <unknown> <unknown>"},
		{"an account", "/api/v1/namespaces/default/serviceaccounts", `"secrets":[{"name":"x"}]`, ``, ""},
		{"a node that reports", "/api/v1/nodes", `"spec":{}`, `{"nodeInfo":{"kubeletVersion":"v1.37.2","osImage":"os","kernelVersion":"6.1","architecture":"arm64","containerRuntimeVersion":"c://1"},"addresses":[{"type":"InternalIP","address":"10.0.0.9"}]}`,
			"Unknown <none> v1.37.2 10.0.0.9 <none> os 6.1 (arm64) c://1"},
		{"a flow schema", "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `"spec":{"priorityLevelConfiguration":{"name":"l"},"matchingPrecedence":7}`, ``, "l 7 <none> ?"},
		{"a driver", "/apis/storage.k8s.io/v1/csidrivers", `"spec":{"tokenRequests":[{"audience":"a"},{"audience":"b"}]}`, ``, "true false false a,b false Persistent"},
		{"a deployment", "/apis/apps/v1/namespaces/default/deployments", `"spec":{"selector":{"matchLabels":{"a":"b"}},"template":` + podTemplate + `}`, `{"replicas":2,"readyReplicas":1,"updatedReplicas":2}`, "1/1 2 0 c i:1 a=b"},
		{"a job", "/apis/batch/v1/namespaces/default/jobs", `"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}`,
			`{"succeeded":1,"startTime":"2026-01-02T03:04:05Z","completionTime":"2026-01-02T03:05:05Z","conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}`, "Complete 1/1 60s c i a=b"},
		{"a cron job", "/apis/batch/v1/namespaces/default/cronjobs", `"spec":{"schedule":"@daily","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}}}}}`, ``,
			"@daily <none> False 0 <none> c i <none>"},
		{"an autoscaler", "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers", `"spec":{"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"Deployment","name":"d"},"metrics":[
			{"type":"Resource","resource":{"name":"cpu","target":{"type":"Utilization","averageUtilization":70}}},{"type":"External","external":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"5"}}},{"type":"Pods","pods":{"metric":{"name":"m"},"target":{"type":"AverageValue","averageValue":"5"}}}]}`,
			`{"currentReplicas":2,"desiredReplicas":2,"currentMetrics":[{"type":"Resource","resource":{"name":"cpu","current":{"averageUtilization":30,"averageValue":"1"}}}]}`, "Deployment/d cpu: 30%/70%, <unknown>/5 (avg) + 1 more... 1 3 2"},
		{"a budget", "/apis/policy/v1/namespaces/default/poddisruptionbudgets", `"spec":{"maxUnavailable":"10%"}`, `{"disruptionsAllowed":2}`, "N/A 10% 2"},
		{"a volume", "/api/v1/persistentvolumes", `"metadata":{"name":"N","annotations":{"volume.beta.kubernetes.io/storage-class":"old"}},"spec":{"accessModes":["ReadOnlyMany","ReadWriteOnce","ReadOnlyMany"],"capacity":{"storage":"1Gi"},"hostPath":{"path":"/x"},"claimRef":{"namespace":"a","name":"b"}}`, ``,
			"1Gi RWO,ROX Retain Pending a/b old <unset>  Filesystem"},
		{"a claim", "/api/v1/namespaces/default/persistentvolumeclaims", `"spec":{"volumeName":"v","storageClassName":"c","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}`, `{"phase":"Bound","capacity":{"storage":"2Gi"},"accessModes":["ReadWriteMany"]}`,
			"Bound v 2Gi RWX c <unset> Filesystem"},
		{"the default class", "/apis/storage.k8s.io/v1/storageclasses", `"metadata":{"name":"N","annotations":{"storageclass.kubernetes.io/is-default-class":"true"}},"provisioner":"example.com/p"`, ``,
			"N (default) example.com/p Delete Immediate false"},
		{"an ingress", "/apis/networking.k8s.io/v1/namespaces/default/ingresses", `"spec":{"tls":[{}],"rules":[{"host":"a.b"},{"host":"b.b"},{"host":"c.b"},{"host":"d.b"},{}]}`, `{"loadBalancer":{"ingress":[{"ip":"192.0.2.1"}]}}`,
			"<none> a.b,b.b,c.b + 2 more... 192.0.2.1 80, 443"},
		{"192.0.2.9", "/apis/networking.k8s.io/v1/ipaddresses", `"spec":{"parentRef":{"group":"example.com","resource":"gateways","name":"g"}}`, ``, "gateways.example.com/g"},
		{"a request", "/apis/certificates.k8s.io/v1/certificatesigningrequests", `"spec":{"request":"` + requestText() + `","signerName":"example.com/s","usages":["client auth"],"expirationSeconds":3600}`, ``, "example.com/s system:admin 60m Pending"},
		{"a request of a pod", "/apis/certificates.k8s.io/v1/namespaces/default/podcertificaterequests", `"spec":{"signerName":"example.com/s","podName":"p","podUID":"u","serviceAccountName":"a","serviceAccountUID":"u","nodeName":"n","nodeUID":"u","stubPKCS10Request":"` + base64.StdEncoding.EncodeToString(stubRequest()) + `","unverifiedUserAnnotations":{"example.com/a":"b"}}`,
			`{"conditions":[{"type":"Denied","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}`, "p a n example.com/s Denied example.com/a=b"},
		{"a taint", "/apis/resource.k8s.io/v1/devicetaintrules", `"spec":{"taint":{"key":"k","value":"v","effect":"NoSchedule","timeAdded":"` + time.Now().Add(-49*time.Hour).UTC().Format(time.RFC3339) + `"}}`, ``, "k v NoSchedule 2d1h"},
		{"an event", "/api/v1/namespaces/default/events", `"involvedObject":{"kind":"Pod","name":"p","namespace":"default","fieldPath":"spec"},"type":"Normal","reason":"R","message":" m ","reportingComponent":"c","reportingInstance":"i"`, ``,
			"<unknown> Normal R pod/p spec c, i m <unknown> 1 N"},
		{"a migration", "/apis/storagemigration.k8s.io/v1/storageversionmigrations", `"spec":{"resource":{"group":"apps","resource":"deployments"}}`, ``, "deployments.apps Succeeded"},
	} {
		t.Run(test.name, func(t *testing.T) {
			name := "cells-" + strings.ReplaceAll(test.name, " ", "-")
			if net.ParseIP(test.name) != nil {
				name = test.name // an IPAddress has no other
			}
			spec := strings.Replace(test.spec, `"name":"N"`, `"name":"`+name+`"`, 1)
			if !strings.Contains(spec, name) {
				spec = `"metadata":{"name":"` + name + `"},` + spec
			}
			must(t, s, http.MethodPost, test.path, "{"+spec+"}", http.StatusCreated)
			if test.status != "" {
				must(t, s, http.MethodPatch, test.path+"/"+name+"/status", `{"status":`+test.status+`}`, http.StatusOK, "Content-Type", "application/merge-patch+json")
			}
			await.Right(t, func() string { // a migration succeeds after its create is answered
				text := must(t, s, http.MethodGet, test.path+"/"+name, "", http.StatusOK, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
				if got, want := cellsOf(t, text, name), strings.ReplaceAll(test.want, "N ", name+" "); got != want && got != strings.TrimSuffix(want, "N")+name {
					return fmt.Sprintf("shown as %q, want %q", got, want)
				}
				return ""
			})
		})
	}
}

// cellsOf joins the cells of a table's row, without its age and without a first cell that is the name.
func cellsOf(t *testing.T, text, name string) string {
	t.Helper()
	var table struct {
		ColumnDefinitions []struct{ Name, Type string }
		Rows              []struct{ Cells []any }
	}
	if err := json.Unmarshal([]byte(text), &table); err != nil || len(table.Rows) != 1 {
		t.Fatalf("%v in %s", err, text)
	}
	var cells []string
	for i, c := range table.Rows[0].Cells {
		if i == len(table.ColumnDefinitions) { // a cell without a column
			break
		}
		column := table.ColumnDefinitions[i]
		if column.Name == "Age" || i == 0 && c == name {
			continue
		}
		if _, number := c.(float64); column.Type == "integer" && !number {
			t.Errorf("the cell of %s is %v, which is no number", column.Name, c)
		}
		cells = append(cells, fmt.Sprint(c))
	}
	return strings.Join(cells, " ")
}
