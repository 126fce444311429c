package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	dto "github.com/prometheus/client_model/go"

	"github.com/asynq-throttle/asynq-throttle/metrics"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

const (
	dashboardFile  = "../deploy/grafana/dashboards/throttle.json"
	operationsFile = "../docs/operations.md"
)

// everything returns a scrape that has each metric.
func everything(t *testing.T) families {
	t.Helper()
	collector, th := observed(t, miniredis.RunT(t).Addr(),
		&metrics.Options{Keys: map[string][]string{"tenant": {"acme"}}}, throttle.Options{})
	if _, err := th.Reserve(t.Context(), job("a", "acme", 1)); err != nil {
		t.Fatal(err)
	}
	happen(collector)
	return scrape(t, collector)
}

var (
	metricName  = regexp.MustCompile(`\bthrottle_[a-z_]+`)
	matchers    = regexp.MustCompile(`\{[^}]*\}`)
	matcherName = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	grouping    = regexp.MustCompile(`\bby\s*\(([^)]*)\)`)
)

// metricsIn lists the metrics that a text names.
func metricsIn(text string) []string {
	names := metricName.FindAllString(matchers.ReplaceAllString(text, ""), -1)
	slices.Sort(names)
	return slices.Compact(names)
}

// labelsIn lists the labels that an expression asks for.
func labelsIn(expression string) (names []string) {
	for _, m := range matchers.FindAllString(expression, -1) {
		for _, name := range matcherName.FindAllStringSubmatch(m, -1) {
			names = append(names, name[1])
		}
	}
	for _, list := range grouping.FindAllStringSubmatch(expression, -1) {
		for name := range strings.SplitSeq(list[1], ",") {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

// family returns the metric that a name in an expression stands for: the metric itself, or the
// histogram whose buckets, sum or count it names; nil if there is none.
func (f families) family(name string) *dto.MetricFamily {
	if family := f[name]; family != nil {
		return family
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		if base, cut := strings.CutSuffix(name, suffix); cut && f[base].GetType() == dto.MetricType_HISTOGRAM {
			return f[base]
		}
	}
	return nil
}

// hasLabel reports whether a metric has a label, le for a histogram's buckets.
func hasLabel(family *dto.MetricFamily, name string) bool {
	return name == "le" && family.GetType() == dto.MetricType_HISTOGRAM ||
		slices.ContainsFunc(family.GetMetric()[0].GetLabel(), func(l *dto.LabelPair) bool { return l.GetName() == name })
}

// expressions returns the queries of the dashboard's panels and variables, by their places in the
// file.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ RefID, Expr string }
		}
		Templating struct {
			List []struct{ Name, Definition string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatal(err)
	}
	found := make(map[string]string)
	for _, panel := range dashboard.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("panel %q asks for nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			found["panel "+panel.Title+" "+target.RefID] = target.Expr
		}
	}
	for _, variable := range dashboard.Templating.List {
		if variable.Definition != "" {
			found["variable "+variable.Name] = variable.Definition
		}
	}
	return found
}

// TestDashboardAsksForWhatThereIs: each metric in the dashboard exists, with each label that the
// dashboard uses.
func TestDashboardAsksForWhatThereIs(t *testing.T) {
	t.Parallel()
	there := everything(t)
	asked := expressions(t)
	if len(asked) < 10 {
		t.Fatalf("only %d expressions were found in %s", len(asked), dashboardFile)
	}
	for where, expression := range asked {
		names := metricsIn(expression)
		if len(names) == 0 {
			t.Errorf("%s: no metric in %s", where, expression)
		}
		var families []*dto.MetricFamily
		for _, name := range names {
			if family := there.family(name); family != nil {
				families = append(families, family)
			} else {
				t.Errorf("%s: there is no metric %s", where, name)
			}
		}
		for _, label := range labelsIn(expression) {
			if !slices.ContainsFunc(families, func(family *dto.MetricFamily) bool { return hasLabel(family, label) }) {
				t.Errorf("%s: no metric has a label %s in %s", where, label, expression)
			}
		}
	}
}

// TestEachMetricIsShownAndDescribed: the dashboard and docs/operations.md name each metric, and no
// other.
func TestEachMetricIsShownAndDescribed(t *testing.T) {
	t.Parallel()
	there := everything(t)
	operations, err := os.ReadFile(operationsFile)
	if err != nil {
		t.Fatal(err)
	}
	var dashboard strings.Builder
	for _, expression := range expressions(t) {
		dashboard.WriteString(expression + "\n")
	}
	for file, text := range map[string]string{operationsFile: string(operations), dashboardFile: dashboard.String()} {
		named := make(map[string]bool)
		for _, name := range metricsIn(text) {
			if family := there.family(name); family != nil {
				named[family.GetName()] = true
			} else {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
		for name := range there {
			if !named[name] {
				t.Errorf("%s does not name %s", file, name)
			}
		}
	}
}

// TestExpressionsAreRead: a metric or a label that does not exist would be found.
func TestExpressionsAreRead(t *testing.T) {
	t.Parallel()
	const expression = `histogram_quantile(0.9, sum by (le, outcome) (` +
		`rate(throttle_wait_seconds_bucket{throttle=~"a|throttle_b", x!="y"}[5m]))) / throttle_gone_total`
	if got, want := metricsIn(expression),
		[]string{"throttle_gone_total", "throttle_wait_seconds_bucket"}; !slices.Equal(got, want) {
		t.Errorf("metrics %q, want %q", got, want)
	}
	if got, want := labelsIn(expression), []string{"throttle", "x", "le", "outcome"}; !slices.Equal(got, want) {
		t.Errorf("labels %q, want %q", got, want)
	}
	there := everything(t)
	if there.family("throttle_gone_total") != nil || there.family("throttle_held_total_bucket") != nil ||
		there.family("throttle_wait_seconds_sum") == nil {
		t.Error("family takes a name for a metric that is none, or the other way round")
	}
	if hasLabel(there["throttle_held_total"], "le") || !hasLabel(there["throttle_wait_seconds"], "le") ||
		hasLabel(there["throttle_wait_seconds"], "tenant") {
		t.Error("hasLabel finds a label that is not there, or not one that is")
	}
}
