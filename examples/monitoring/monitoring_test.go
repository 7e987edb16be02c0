package monitoring

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
)

// rule is an expression of the rules or the dashboard.
type rule struct{ name, expr string }

// rules returns those of the file, which Prometheus takes.
func rules(t *testing.T) (all []rulefmt.Rule) {
	t.Helper()
	groups, errs := rulefmt.ParseFile("rules.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.Default())
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil {
		t.FailNow()
	}
	for _, g := range groups.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// panels returns the expressions of the dashboard, with its variables set.
func panels(t *testing.T) (all []rule) {
	t.Helper()
	text, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, rule{p.Title, strings.NewReplacer("$__rate_interval", "1m", "$instance", ".*").Replace(target.Expr)})
		}
	}
	return all
}

// serve starts the program and returns what it shows on /metrics when something has been done with it.
func serve(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "apiserver-lite")
	if output, err := exec.Command("make", "-s", "-C", "../..", "build", "BIN="+dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	cmd := exec.Command(program, "--listen=127.0.0.1:0", "--data-dir="+filepath.Join(dir, "data"), "--snapshot-schedule=1h", "--snapshot-dir="+filepath.Join(dir, "snapshots"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	first, err := bufio.NewReader(out).ReadString('\n') // which comes when it's ready
	url, ready := strings.CutPrefix(strings.TrimSpace(first), "listening on ")
	if err != nil || !ready {
		t.Fatalf("the server says %q: %v", first, err)
	}
	get := func(path string) string {
		res, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	get("/api/v1/namespaces?watch=true&timeoutSeconds=1")
	get("/api/v1/namespaces/default")
	return get("/metrics")
}

// TestMetricsAreServed: each metric that an expression names is one that a server has.
func TestMetricsAreServed(t *testing.T) {
	all := panels(t)
	for _, r := range rules(t) {
		all = append(all, rule{r.Alert + r.Record, r.Expr})
	}
	served := map[string]bool{"up": true} // which is Prometheus'
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)[{ ]`).FindAllStringSubmatch(serve(t), -1) {
		served[m[1]] = true
	}
	for _, r := range all {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.expr)
		if err != nil {
			t.Errorf("%s: %v", r.name, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if of, ok := n.(*parser.VectorSelector); ok && !served[of.Name] {
				t.Errorf("%s is about %s, which isn't served", r.name, of.Name)
			}
			return nil
		})
	}
}

// fires are series under which each of the alerts has to fire. Elsewhere they're as of a server that is well.
var fires = map[string]string{
	"ApiserverLiteDown":           `up{job="apiserver-lite"} 0x60`,
	"ApiserverLitePanics":         `apiserver_request_panics_total 0x55 1x10`,
	"ApiserverLiteErrors":         `apiserver_request_total{code="503"} 0+10x60`,
	"ApiserverLiteTurnsAway":      `apiserver_request_total{code="429"} 0+10x60`,
	"ApiserverLiteSlow":           "apiserver_request_sli_duration_seconds_bucket{verb=\"POST\",scope=\"resource\",le=\"1\"} 0+90x60\n apiserver_request_sli_duration_seconds_bucket{verb=\"POST\",scope=\"resource\",le=\"2\"} 0+100x60\n apiserver_request_sli_duration_seconds_bucket{verb=\"POST\",scope=\"resource\",le=\"+Inf\"} 0+100x60",
	"ApiserverLiteDatabaseFills":  `etcd_mvcc_db_total_size_in_bytes 4000000000x60`,
	"ApiserverLiteDiskSlow":       "etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.064\"} 0+50x60\n etcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.256\"} 0+100x60\n etcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 0+100x60",
	"ApiserverLiteWatchersLag":    `apiserver_lite_watchers_lagging 3x60`,
	"ApiserverLiteHistoryShort":   `apiserver_lite_history_short 1x60`,
	"ApiserverLiteCollectorStuck": `apiserver_lite_collector_queue 2x60`,
	"ApiserverLiteUnreadable":     `apiserver_lite_feed_undecodable_total 0x55 1x10`,
	"ApiserverLiteSnapshotFails":  `apiserver_lite_scheduled_snapshots_total{result="failure"} 0x50 1x10`,
	"ApiserverLiteSnapshotOld":    `apiserver_lite_scheduled_snapshot_timestamp_seconds 1x6000`,
}

// well are the series of a server that is well.
const well = `
 up{job="apiserver-lite"} 1x6000
 apiserver_request_panics_total 0x6000
 apiserver_request_total{code="200"} 0+100x6000
 apiserver_request_total{code="429"} 0x6000
 apiserver_request_total{code="503"} 0x6000
 apiserver_request_sli_duration_seconds_bucket{verb="POST",scope="resource",le="1"} 0+100x6000
 apiserver_request_sli_duration_seconds_bucket{verb="POST",scope="resource",le="+Inf"} 0+100x6000
 etcd_mvcc_db_total_size_in_bytes 1000000x6000
 etcd_disk_wal_fsync_duration_seconds_bucket{le="0.064"} 0+100x6000
 etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"} 0+100x6000
 apiserver_lite_watchers_lagging 0x6000
 apiserver_lite_history_short 0x6000
 apiserver_lite_collector_queue 0x6000
 apiserver_lite_feed_undecodable_total 0x6000
 apiserver_lite_scheduled_snapshots_total{result="failure"} 0x6000
 apiserver_lite_scheduled_snapshot_timestamp_seconds 0x6000
`

// ask evaluates an expression after an hour, or after four days, of series.
func ask(t *testing.T, series, expr string, after time.Duration) int {
	t.Helper()
	store := promqltest.LoadedStorage(t, "load 1m\n "+series+"\n")
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	query, err := engine.NewInstantQuery(context.Background(), store, promql.NewPrometheusQueryOpts(false, 0, nil), expr, time.Unix(0, 0).Add(after))
	if err != nil {
		t.Fatal(err)
	}
	defer query.Close()
	result := query.Exec(context.Background())
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return len(vector)
}

// TestAlertsFire: each alert fires in its case and not while all is well, and has a runbook that's there.
func TestAlertsFire(t *testing.T) {
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	left := maps.Clone(fires)
	for _, r := range rules(t) {
		if r.Alert == "" {
			continue
		}
		series, ok := fires[r.Alert]
		if !ok {
			t.Errorf("%s has no case", r.Alert)
			continue
		}
		delete(left, r.Alert)
		after := time.Hour
		if strings.HasSuffix(r.Alert, "Old") {
			after = 4 * 24 * time.Hour
		}
		if n := ask(t, strings.TrimSpace(well), r.Expr, after); n != 0 {
			t.Errorf("%s fires while all is well", r.Alert)
		}
		names := regexp.MustCompile(`(?m)^ ?([a-z_]+)(\{[^}]*\})?`)
		replaced := []string{}
		for _, m := range names.FindAllString(series, -1) {
			replaced = append(replaced, strings.TrimSpace(m))
		}
		var others []string
		for line := range strings.Lines(strings.TrimSpace(well)) {
			if !slices.Contains(replaced, names.FindString(strings.TrimSpace(line))) {
				others = append(others, " "+strings.TrimSpace(line))
			}
		}
		if n := ask(t, series+"\n"+strings.Join(others, "\n"), r.Expr, after); n == 0 {
			t.Errorf("%s doesn't fire", r.Alert)
		}
		_, anchor, _ := strings.Cut(r.Annotations["runbook_url"], "/docs/operations.md#")
		if !strings.Contains(string(page), "\n### "+r.Alert+"\n") || anchor != strings.ToLower(r.Alert) {
			t.Errorf("%s has no runbook at %s", r.Alert, r.Annotations["runbook_url"])
		}
	}
	for name := range left {
		t.Errorf("there's no alert %s", name)
	}
}

// TestRecords: recording rules and panels give something of series that a server has.
func TestRecords(t *testing.T) {
	series := strings.TrimSpace(well) + `
 apiserver_lite_feed_revision 0+10x60
 apiserver_watch_events_total{resource="a"} 0+10x60`
	for _, r := range rules(t) {
		if r.Record != "" && ask(t, series, r.Expr, time.Hour) == 0 {
			t.Errorf("%s gives nothing", r.Record)
		}
	}
}
