package etcd

import (
	"log/slog"
	"reflect"
	"testing"

	"go.etcd.io/etcd/server/v3/config"
	"go.etcd.io/etcd/server/v3/embed"
)

// TestEtcdConfig: what this package doesn't mean to differ in is as etcd configures itself.
func TestEtcdConfig(t *testing.T) {
	ours := map[string]string{
		"AuthToken":                   "nobody logs in",
		"AutoCompactionMode":          "the keeper compacts",
		"CORS":                        "there are no clients' ports",
		"ClientURLs":                  "there are no clients' ports",
		"DiscoveryCfg":                "members are told of each other by a join",
		"EnableGRPCGateway":           "there are no clients' ports",
		"HostWhitelist":               "there are no clients' ports",
		"InitialClusterToken":         "the data directory's id",
		"MaxConcurrentStreams":        "there are no clients' ports",
		"MaxRequestBytes":             "MaxValueBytes and what a request has besides",
		"MaxTxnOps":                   "maxOperations",
		"MaxSnapFiles":                "keptWALFiles",
		"Name":                        "memberName",
		"QuotaBackendBytes":           "the options'",
		"ServerFeatureGate":           "compared below",
		"TickMs":                      "tick",
		"SnapshotCatchUpEntries":      "catchUpEntries",
		"SnapshotCount":               "snapshotCount",
		"WarningApplyDuration":        "slowApply",
		"WarningUnaryRequestDuration": "there are no clients' ports",
	}
	o, err := Options{Log: slog.New(slog.DiscardHandler)}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cfg, err := etcdConfig(&dataDir{path: t.TempDir(), id: "id"}, o, func(error) {}, nil)
	if err != nil {
		t.Fatal(err)
	}
	upstream := embed.NewConfig()
	theirs, mine := reflect.ValueOf(*upstream), reflect.ValueOf(*cfg)
	compared := 0
	for _, f := range reflect.VisibleFields(reflect.TypeFor[config.ServerConfig]()) {
		want, got := theirs.FieldByName(f.Name), mine.FieldByIndex(f.Index)
		if !want.IsValid() || want.Type() != got.Type() || ours[f.Name] != "" {
			continue
		}
		compared++
		if !reflect.DeepEqual(want.Interface(), got.Interface()) {
			t.Errorf("%s is %v, and etcd's %v", f.Name, got, want)
		}
	}
	if compared < 10 {
		t.Errorf("only %d fields were compared", compared)
	}
	if cfg.TickMs*uint(cfg.ElectionTicks) != upstream.ElectionMs || cfg.MaxWALFiles != keptWALFiles || cfg.NewCluster != upstream.IsNewCluster() {
		t.Errorf("%+v", cfg)
	}
	if got, want := cfg.ServerFeatureGate.(interface{ String() string }).String(), upstream.ServerFeatureGate.(interface{ String() string }).String(); got != want {
		t.Errorf("feature gates %q, and etcd's %q", got, want)
	}
}
