package builtin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/apiserver-lite/apiserver-lite/server"
	"github.com/apiserver-lite/apiserver-lite/server/servertest"
)

const appArmor = "container.apparmor.security.beta.kubernetes.io/"

// TestProfilesOfAnnotations creates pods whose annotations say what fields do. What they become is what upstream's applyAppArmorVersionSkew
// makes of them, and what is said of them is what ValidatePodSpecificAnnotations and its neighbours say.
func TestProfilesOfAnnotations(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const deprecated = `metadata.annotations[` + appArmor + `c]: deprecated since v1.30; use the "appArmorProfile" field instead`
	for _, test := range []struct {
		name, annotations, spec string
		profile                 string // of the container; "" for none
		warning, wrong          string // "" for none
	}{
		{name: "taken over", annotations: `"` + appArmor + `c":"runtime/default"`, profile: "RuntimeDefault", warning: deprecated},
		{name: "of the node", annotations: `"` + appArmor + `c":"localhost/mine"`, profile: "Localhost", warning: deprecated},
		{name: "without a name", annotations: `"` + appArmor + `c":"localhost/"`, warning: deprecated},
		{name: "as the pod's", annotations: `"` + appArmor + `c":"unconfined"`, spec: `"securityContext":{"appArmorProfile":{"type":"Unconfined"}},`},
		{name: "on Windows", annotations: `"` + appArmor + `c":"unconfined"`, spec: `"os":{"name":"windows"},`},
		{name: "another than the pod's", annotations: `"` + appArmor + `c":"unconfined"`, spec: `"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}},`, profile: "Unconfined", warning: deprecated},
		{name: "no profile", annotations: `"` + appArmor + `c":"x"`, warning: deprecated, wrong: `metadata.annotations[` + appArmor + `c]: Invalid value: "x": invalid AppArmor profile name: "x"`},
		{name: "no container", annotations: `"` + appArmor + `d":"unconfined"`, wrong: `metadata.annotations[` + appArmor + `d]: Invalid value: "d": container not found`},
		{name: "seccomp of the pod", annotations: `"seccomp.security.alpha.kubernetes.io/pod":"docker/default"`, spec: `"securityContext":{"seccompProfile":{"type":"Unconfined"}},`,
			wrong: `spec.securityContext.seccompProfile.type: Forbidden: seccomp type in annotation and field must match`},
		{name: "no profile of seccomp", annotations: `"container.seccomp.security.alpha.kubernetes.io/c":"x"`,
			warning: `metadata.annotations[container.seccomp.security.alpha.kubernetes.io/c]: non-functional in v1.27+; use the "seccompProfile" field instead`,
			wrong:   `metadata.annotations.container.seccomp.security.alpha.kubernetes.io/c: Invalid value: "x": must be a valid seccomp profile`},
		{name: "tolerations", annotations: `"scheduler.alpha.kubernetes.io/tolerations":"[{\"operator\":\"Be\",\"key\":\"a\"}]"`,
			wrong: `metadata.annotations.scheduler.alpha.kubernetes.io/tolerations[0].operator: Unsupported value: "Be": supported values: "Equal", "Exists"`},
		{name: "no tolerations", annotations: `"scheduler.alpha.kubernetes.io/tolerations":"{}"`,
			wrong: `metadata.annotations: Invalid value: "scheduler.alpha.kubernetes.io/tolerations": json: cannot unmarshal object into Go value of type []core.Toleration`},
	} {
		t.Run(test.name, func(t *testing.T) {
			code := http.StatusCreated
			if test.wrong != "" {
				code = http.StatusUnprocessableEntity
			}
			res, text := s.Do(http.MethodPost, "/api/v1/namespaces/default/pods?dryRun=All", `{"metadata":{"name":"p","annotations":{`+test.annotations+`}},"spec":{`+test.spec+`"containers":[{"name":"c","image":"i"}]}}`, "Content-Type", "application/json")
			answer := parse(t, text)
			if res.StatusCode != code {
				t.Fatalf("%d %s", res.StatusCode, text)
			}
			if want := `Pod "p" is invalid: ` + test.wrong; test.wrong != "" && str(answer["message"]) != want {
				t.Errorf("%v, want\n%s", answer["message"], want)
			}
			containers, _ := at(answer, "spec.containers").([]any)
			for _, c := range containers {
				if profile := str(at(c, "securityContext.appArmorProfile.type")); profile != test.profile {
					t.Errorf("the container's profile is %q, not %q", profile, test.profile)
				}
			}
			warnings := strings.ReplaceAll(strings.Join(res.Header.Values("Warning"), "\n"), `\"`, `"`)
			if test.wrong == "" && !strings.Contains(warnings, test.warning) || test.warning == "" && warnings != "" {
				t.Errorf("warnings: %s, want %s", warnings, test.warning)
			}
		})
	}
}

// TestKeptAnnotations changes annotations that a pod keeps, through each path.
func TestKeptAnnotations(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const pods = "/api/v1/namespaces/default/pods"
	must(t, s, http.MethodPost, pods, `{"metadata":{"name":"p","annotations":{"`+appArmor+`c":"unconfined"}},"spec":{"containers":[{"name":"c","image":"i"}]}}`, http.StatusCreated)
	for _, path := range []string{"", "/status"} {
		for patch, wrong := range map[string]string{
			`"` + appArmor + `c":null`:                          `metadata.annotations[` + appArmor + `c]: Forbidden: may not remove or update AppArmor annotations`,
			`"` + appArmor + `c":"runtime/default"`:             `metadata.annotations[` + appArmor + `c]: Forbidden: may not remove or update AppArmor annotations`,
			`"kubernetes.io/config.mirror":"x"`:                 `metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation`,
			`"controller.kubernetes.io/pod-deletion-cost":"+1"`: `metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer`,
		} {
			text := must(t, s, http.MethodPatch, pods+"/p"+path, `{"metadata":{"annotations":{`+patch+`}}}`, http.StatusUnprocessableEntity, "Content-Type", "application/merge-patch+json")
			if message := str(parse(t, text)["message"]); !strings.Contains(message, wrong) {
				t.Errorf("%s %s:\n%s, want\n%s", path, patch, message, wrong)
			}
		}
	}
}

// TestTemplatesOfAnnotations: a template keeps its annotations, which are checked and warned of.
func TestTemplatesOfAnnotations(t *testing.T) {
	s := servertest.New(t, all, func(s *server.Server) { s.API.Controllers = "none" })
	const templates = "/api/v1/namespaces/default/podtemplates?dryRun=All"
	template := func(profile string) string {
		return `{"metadata":{"name":"t"},"template":{"metadata":{"annotations":{"` + appArmor + `c":"unconfined"}},"spec":{"containers":[{"name":"c","image":"i"` + profile + `}]}}}`
	}
	res, text := s.Do(http.MethodPost, templates, template(""), "Content-Type", "application/json")
	if warnings := strings.Join(res.Header.Values("Warning"), "\n"); res.StatusCode != http.StatusCreated || !strings.Contains(warnings, "template.metadata.annotations["+appArmor+"c]: deprecated since v1.30") {
		t.Errorf("%d %s: %s", res.StatusCode, text, warnings)
	}
	text = must(t, s, http.MethodPost, templates, template(`,"securityContext":{"appArmorProfile":{"type":"RuntimeDefault"}}`), http.StatusUnprocessableEntity)
	if want := `template.spec.containers[0].securityContext.appArmorProfile.type: Forbidden: apparmor type in annotation and field must match`; !strings.Contains(str(parse(t, text)["message"]), want) {
		t.Errorf("%s, want %s", text, want)
	}
}
