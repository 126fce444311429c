package metrics_test

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

const alertsFile = "../deploy/prometheus/alerts.yml"

// alerts are the expressions of the rules, by their names: a rule is the lines between
// "- alert:" and the next one, and its expression is one line.
func alerts(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	rules := make(map[string]string)
	for _, rule := range strings.Split(string(text), "\n      - alert: ")[1:] {
		name, rest, _ := strings.Cut(rule, "\n")
		expr := regexp.MustCompile(`(?m)^        expr: (.+)$`).FindStringSubmatch(rest)
		switch {
		case rules[name] != "":
			t.Errorf("%s is there twice", name)
		case expr == nil || !strings.Contains(rest, "\n        labels: {severity: ") ||
			!strings.Contains(rest, "\n          summary: \""):
			t.Errorf("%s has no expr, no severity or no summary", name)
		default:
			rules[name] = expr[1]
		}
	}
	return rules
}

// TestAlertsAskForWhatThereIs: each metric of an alert exists, with each label that the alert uses,
// and no alert mixes throttles.
func TestAlertsAskForWhatThereIs(t *testing.T) {
	t.Parallel()
	there := everything(t)
	rules := alerts(t)
	if len(rules) < 10 {
		t.Fatalf("only %d alerts were found in %s", len(rules), alertsFile)
	}
	for name, expression := range rules {
		var families []*dto.MetricFamily
		for _, metric := range metricsIn(expression) {
			if family := there.family(metric); family != nil {
				families = append(families, family)
			} else {
				t.Errorf("%s: there is no metric %s", name, metric)
			}
		}
		for _, label := range labelsIn(expression) {
			if !slices.ContainsFunc(families, func(family *dto.MetricFamily) bool { return hasLabel(family, label) }) {
				t.Errorf("%s: no metric has a label %s", name, label)
			}
		}
		for _, list := range grouping.FindAllStringSubmatch(expression, -1) {
			if !strings.Contains(list[1], "throttle") {
				t.Errorf("%s mixes throttles: by (%s)", name, list[1])
			}
		}
	}
}

// TestAlertsAreDescribed: docs/operations.md has a row for each alert, and for no other.
func TestAlertsAreDescribed(t *testing.T) {
	t.Parallel()
	operations, err := os.ReadFile(operationsFile)
	if err != nil {
		t.Fatal(err)
	}
	rules := alerts(t)
	rows := regexp.MustCompile("(?m)^\\| `(Throttle[A-Za-z]+)` \\|").FindAllStringSubmatch(string(operations), -1)
	for _, row := range rows {
		if rules[row[1]] == "" {
			t.Errorf("%s describes %s, which is no alert", operationsFile, row[1])
		}
		delete(rules, row[1])
	}
	for name := range rules {
		t.Errorf("%s does not describe %s", operationsFile, name)
	}
}

// TestPromtoolAcceptsAlerts: Debian's package prometheus has promtool. With REQUIRE_PROMTOOL=1,
// as in .ci/run, a machine without it is a failure.
func TestPromtoolAcceptsAlerts(t *testing.T) {
	t.Parallel()
	promtool, err := exec.LookPath("promtool")
	switch {
	case err == nil:
	case os.Getenv("REQUIRE_PROMTOOL") == "1":
		t.Fatalf("%v, and REQUIRE_PROMTOOL=1 wants it", err)
	default:
		t.Skipf("NOT TESTED by promtool: %v", err)
	}
	if out, err := exec.CommandContext(t.Context(), promtool, "check", "rules", alertsFile).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestMetricsAreDescribedOnce: docs/operations.md has one row for each metric.
func TestMetricsAreDescribedOnce(t *testing.T) {
	t.Parallel()
	operations, err := os.ReadFile(operationsFile)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	rows := regexp.MustCompile("(?m)^\\| `(throttle_[a-z_]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(string(operations), -1) {
		if seen[row[1]] {
			t.Errorf("%s describes %s twice", operationsFile, row[1])
		}
		seen[row[1]] = true
	}
}

// TestPanelsMixNothing: each panel shows one throttle apart from another, and values of one
// unit.
func TestPanelsMixNothing(t *testing.T) {
	t.Parallel()
	units := make(map[string]string) // by the panel's title
	for where, expression := range expressions(t) {
		title, isPanel := strings.CutPrefix(where, "panel ")
		if !isPanel {
			continue
		}
		title = title[:strings.LastIndex(title, " ")]
		lists := grouping.FindAllStringSubmatch(expression, -1)
		for _, list := range lists {
			if !slices.Contains(strings.Split(strings.ReplaceAll(list[1], " ", ""), ","), "throttle") {
				t.Errorf("%s mixes throttles: %s", where, expression)
			}
		}
		if len(lists) == 0 {
			t.Errorf("%s mixes throttles: %s", where, expression)
		}
		unit := unitOf(expression)
		if other := units[title]; other != "" && other != unit {
			t.Errorf("panel %s has %s and %s", title, other, unit)
		}
		units[title] = unit
	}
}

// unitOf returns the unit of an expression: the unit in its first metric's name, and whether the
// expression is a rate or an increase of that.
func unitOf(expression string) string {
	name := metricsIn(expression)[0]
	change := regexp.MustCompile(`(rate|increase|histogram_quantile)\(`).FindString(expression)
	switch {
	case strings.Contains(expression, "histogram_quantile"):
		return "seconds"
	case strings.Contains(expression, ") / sum"):
		return "quotient"
	case strings.Contains(name, "units"):
		return change + "units"
	case strings.HasSuffix(name, "_ratio"), strings.HasSuffix(name, "_seconds"):
		return name[strings.LastIndex(name, "_"):]
	case change != "":
		return change
	}
	return name[strings.LastIndex(name, "_"):] // flows, jobs, keys, processes
}
