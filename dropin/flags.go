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

// without are flags that have no effect here, of one type, and why.
type without struct {
	kind  kind
	names string
	why   string
}

// Why flags have no effect.
const (
	ofKubelets = "this server calls no kubelet"
	ofPeers    = "servers over one store find each other in it"
	ofVersions = "one version is served"
	ofLog      = "the log has one form: see --v"
	ofMetrics  = "all metrics are shown"
	ofCache    = "the watch cache has everything that is stored, and etcd's history backs it"
	ofLeaders  = "nobody acts on coordinated leader election"
	ofEtcd     = "asked for when it's needed"
)

// unused are the flags of kube-apiserver 1.37 that have no effect here.
var unused = []without{
	{aBool, "aggregator-reject-forwarding-redirect", "redirects of aggregated API servers are always rejected"},
	{aBool, "allow-privileged", "nothing runs pods"},
	{aBool, "emulation-forward-compatible runtime-config-emulation-forward-compatible", ofVersions},
	{aBool, "enable-bootstrap-token-auth", "nodes don't join by tokens"},
	{aBool, "enable-garbage-collector", "APISERVER_LITE_CONTROLLERS says what runs"},
	{aBool, "enable-logs-handler", "the log is on stderr"},
	{aBool, "log-json-split-stream log-text-split-stream", ofLog},
	{aBool, "permit-address-sharing permit-port-sharing", "the address is this server's alone"},
	{aBool, "service-account-extend-token-expiration", "tokens live as long as they say"},
	{aBool, "service-account-lookup", "a token's account is always looked up"},
	{aBool, "shutdown-send-retry-after", "requests are refused with Retry-After while the server ends, always"},
	{aBool, "watch-cache", ofCache},
	{aNumber, "apiserver-count lease-reuse-duration-seconds", ofPeers},
	{aNumber, "default-watch-cache-size", ofCache},
	{aNumber, "delete-collection-workers", "deletions of a collection are always done several at once"},
	{aNumber, "kubelet-port kubelet-read-only-port", ofKubelets},
	{aNumber, "max-connection-bytes-per-sec", "no connection is throttled"},
	{aDuration, "audit-webhook-batch-initial-backoff", "use --audit-webhook-initial-backoff"},
	{aDuration, "coordinated-leadership-lease-duration coordinated-leadership-renew-deadline coordinated-leadership-retry-period", ofLeaders},
	{aDuration, "etcd-count-metric-poll-period etcd-db-metric-poll-interval etcd-healthcheck-timeout etcd-readycheck-timeout", ofEtcd},
	{aDuration, "kubelet-timeout", ofKubelets},
	{aDuration, "livez-grace-period", "/livez fails only where a restart helps"},
	{aDuration, "log-flush-frequency", ofLog},
	{aDuration, "shutdown-watch-termination-grace-period", "watches end with a bookmark when the requests before them are answered"},
	{aDuration, "storage-initialization-timeout", ofEtcd},
	{aText, "allow-metric-labels allow-metric-labels-manifest disabled-metrics show-hidden-metrics-for-version", ofMetrics},
	{aText, "debug-socket-path", "profiles are at /debug/pprof"},
	{aText, "emulated-version min-compatibility-version", ofVersions},
	{aText, "etcd-servers-overrides", "all is in one store"},
	{aText, "external-hostname", "documents name paths, not hosts"},
	{aText, "kubelet-certificate-authority kubelet-client-certificate kubelet-client-key kubelet-preferred-address-types", ofKubelets},
	{aText, "log-json-info-buffer-size log-text-info-buffer-size logging-format vmodule", ofLog},
	{aText, "peer-advertise-ip peer-advertise-port peer-ca-file", ofPeers},
	{aText, "storage-backend storage-media-type", "the store is etcd, and has JSON"},
	{aText, "watch-cache-sizes", ofCache},
}

// refused are the flags that ask for a protection, or for an answer, which isn't given here, with the reason. Their empty or false value
// asks for nothing.
var refused = map[string]string{
	"admission-control":                "use --enable-admission-plugins and --disable-admission-plugins",
	"authorization-policy-file":        "there is no ABAC: use RBAC, or a webhook",
	"service-account-signing-endpoint": "tokens are signed by a key in a file only",
}

// FlagNames returns the names of kube-apiserver's flags, and of etcd's that has a meaning, for a test of the documentation.
func FlagNames() iter.Seq[string] {
	return func(yield func(string) bool) {
		more := yield(listenClientURLs)
		(&APIServer{}).flagSet(&flags{}).VisitAll(func(f *pflag.Flag) { more = more && yield(f.Name) })
	}
}

// addOthers adds to the set the flags of kube-apiserver that have no meaning here: those without an effect, whose names are added to noted
// when they are given, and those that are refused.
func addOthers(set *pflag.FlagSet, noted *[]string) {
	for _, w := range unused {
		for name := range strings.FieldsSeq(w.names) {
			flag := set.VarPF(&unusedFlag{name: name, kind: w.kind, noted: noted}, name, "", "no effect here: "+w.why)
			if w.kind == aBool { // a switch may be given without a value
				flag.NoOptDefVal = "true"
			}
		}
	}
	for name, reason := range refused {
		set.Var(&refusedFlag{reason: reason}, name, "refused: "+reason)
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
