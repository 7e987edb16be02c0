package dropin

import (
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// kind is what a flag without an effect takes, so that a value that kube-apiserver would refuse is refused here, too.
type kind string

const (
	aBool     kind = "bool"
	aNumber   kind = "number"
	aDuration kind = "duration"
	aText     kind = "string"
)

// unused are the flags of kube-apiserver 1.37 that have no effect here, by what they take. Most are about parts of a cluster that
// this server doesn't have: kubelets, peers, limits that are others here.
var unused = map[kind]string{
	aBool: `aggregator-reject-forwarding-redirect allow-privileged audit-webhook-batch-throttle-enable audit-webhook-truncate-enabled
		emulation-forward-compatible enable-bootstrap-token-auth enable-garbage-collector
		enable-logs-handler log-json-split-stream log-text-split-stream
		permit-address-sharing permit-port-sharing runtime-config-emulation-forward-compatible
		service-account-extend-token-expiration service-account-lookup shutdown-send-retry-after watch-cache`,
	aNumber: `apiserver-count audit-webhook-batch-buffer-size audit-webhook-batch-max-size audit-webhook-batch-throttle-burst
		audit-webhook-batch-throttle-qps audit-webhook-truncate-max-batch-size audit-webhook-truncate-max-event-size
		default-watch-cache-size delete-collection-workers goaway-chance kubelet-port kubelet-read-only-port
		lease-reuse-duration-seconds max-connection-bytes-per-sec min-request-timeout`,
	aDuration: `audit-webhook-batch-initial-backoff audit-webhook-batch-max-wait audit-webhook-initial-backoff
		authentication-token-webhook-cache-ttl authorization-webhook-cache-authorized-ttl authorization-webhook-cache-unauthorized-ttl
		coordinated-leadership-lease-duration coordinated-leadership-renew-deadline coordinated-leadership-retry-period
		etcd-count-metric-poll-period etcd-db-metric-poll-interval etcd-healthcheck-timeout etcd-readycheck-timeout
		event-ttl kubelet-timeout livez-grace-period log-flush-frequency request-timeout shutdown-delay-duration
		shutdown-watch-termination-grace-period storage-initialization-timeout`,
	aText: `allow-metric-labels allow-metric-labels-manifest audit-webhook-mode audit-webhook-version
		authentication-token-webhook-version authorization-webhook-version debug-socket-path disabled-metrics emulated-version
		etcd-servers-overrides external-hostname
		kubelet-certificate-authority kubelet-client-certificate kubelet-client-key kubelet-preferred-address-types log-json-info-buffer-size
		log-text-info-buffer-size logging-format min-compatibility-version peer-advertise-ip peer-advertise-port peer-ca-file
		show-hidden-metrics-for-version
		storage-backend storage-media-type vmodule watch-cache-sizes`,
}

// refused are the flags that ask for a protection, or for an answer, which isn't given here, with the reason. Their empty or false value
// asks for nothing.
var refused = map[string]string{
	"admission-control":                        "use --enable-admission-plugins and --disable-admission-plugins",
	"audit-webhook-config-file":                "audit events can be written to a file only, by --audit-log-path",
	"authentication-token-webhook-config-file": "there is no authentication by webhook",
	"authorization-config":                     "there is no chain of authorizers",
	"authorization-policy-file":                "there is no ABAC",
	"authorization-webhook-config-file":        "there is no authorization by webhook",
	"disable-http2-serving":                    "HTTP/2 is always served",
	"egress-selector-config-file":              "connections to webhooks can't be sent through a proxy",
	"oidc-ca-file":                             oidcReason,
	"oidc-client-id":                           oidcReason,
	"oidc-groups-claim":                        oidcReason,
	"oidc-groups-prefix":                       oidcReason,
	"oidc-issuer-url":                          oidcReason,
	"oidc-required-claim":                      oidcReason,
	"oidc-signing-algs":                        oidcReason,
	"oidc-username-claim":                      oidcReason,
	"oidc-username-prefix":                     oidcReason,
	"service-account-signing-endpoint":         "tokens are signed by a key in a file only",
	"strict-transport-security-directives":     "the header Strict-Transport-Security isn't sent",
}

const oidcReason = "use --authentication-config"

// refusedBools are those of refused that are true or false.
var refusedBools = []string{"disable-http2-serving"}

// FlagNames returns the names of kube-apiserver's flags, and of etcd's that has a meaning, for a test of the documentation.
func FlagNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		more := yield(listenClientURLs)
		(&APIServer{}).flagSet(&flags{}).VisitAll(func(f *pflag.Flag) { more = more && yield(f.Name) })
	}
}

// addOthers adds to the set each flag of kube-apiserver that it doesn't have yet: those without an effect, whose names are added to noted
// when they are given, and those that are refused.
func addOthers(set *pflag.FlagSet, noted *[]string) {
	for k, names := range unused {
		for name := range strings.FieldsSeq(names) {
			if set.Lookup(name) == nil {
				add(set, name, &unusedFlag{name: name, kind: k, noted: noted}, k == aBool)
			}
		}
	}
	for name, reason := range refused {
		if set.Lookup(name) == nil {
			add(set, name, &refusedFlag{reason: reason}, slices.Contains(refusedBools, name))
		}
	}
}

// add adds a flag; a switch may be given without a value.
func add(set *pflag.FlagSet, name string, value pflag.Value, isSwitch bool) {
	usage := "no effect here"
	if _, ok := value.(*refusedFlag); ok {
		usage = "refused: " + refused[name]
	}
	flag := set.VarPF(value, name, "", usage)
	if isSwitch {
		flag.NoOptDefVal = "true"
	}
}

// unusedFlag is a flag that has no effect. The log names it.
type unusedFlag struct {
	name  string
	kind  kind
	noted *[]string
}

func (f *unusedFlag) String() string { return "" }
func (f *unusedFlag) Type() string   { return string(f.kind) }

func (f *unusedFlag) Set(s string) (err error) {
	switch f.kind {
	case aBool:
		_, err = strconv.ParseBool(s)
	case aNumber:
		_, err = strconv.ParseFloat(s, 64)
	case aDuration:
		_, err = time.ParseDuration(s)
	}
	if err == nil && !slices.Contains(*f.noted, "--"+f.name) {
		*f.noted = append(*f.noted, "--"+f.name)
	}
	return err
}

// refusedFlag is a flag that must not be given, unless it asks for nothing.
type refusedFlag struct{ reason string }

func (f *refusedFlag) String() string { return "" }
func (f *refusedFlag) Type() string   { return string(aText) }

func (f *refusedFlag) Set(s string) error {
	if s == "" || s == "false" {
		return nil
	}
	return fmt.Errorf("this server doesn't do that: %s", f.reason)
}
