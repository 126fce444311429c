package metrics_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

const (
	composeFile    = "../docker-compose.yml"
	providerFile   = "../deploy/grafana/provisioning/dashboards/throttle.yml"
	datasourceFile = "../deploy/grafana/provisioning/datasources/prometheus.yml"
	prometheusFile = "../deploy/prometheus/prometheus.yml"
	dockerfile     = "../deploy/Dockerfile"
	emailerReadme  = "../examples/emailer/README.md"
	emailerOptions = "../examples/emailer/options.go"
)

// provisioning has the files, by name, by which the dashboard finds Prometheus, and Prometheus the
// emailer.
type provisioning map[string]string

func provisioned(t *testing.T) provisioning {
	t.Helper()
	files := make(provisioning)
	for _, name := range []string{composeFile, providerFile, datasourceFile, dashboardFile, prometheusFile,
		emailerReadme, emailerOptions} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}

// reader reads the files and keeps the faults.
type reader struct {
	files  provisioning
	faults []string
}

func (r *reader) fault(format string, args ...any) {
	r.faults = append(r.faults, fmt.Sprintf(format, args...))
}

// all returns the values that a file has for a pattern; it is a fault if there is none.
func (r *reader) all(name, pattern string) (values []string) {
	for _, found := range regexp.MustCompile(`(?m)`+pattern).FindAllStringSubmatch(r.files[name], -1) {
		values = append(values, found[1])
	}
	if len(values) == 0 {
		r.fault("%s has nothing like %s", name, pattern)
	}
	return values
}

// one returns the only value that a file has for a pattern.
func (r *reader) one(name, pattern string) string {
	values := r.all(name, pattern)
	if len(values) != 1 {
		r.fault("%s has %q, want one", name, values)
		return ""
	}
	return values[0]
}

// service reads the part of docker-compose.yml about one service, which must have these lines.
func (r *reader) service(name string, lines ...string) {
	_, section, _ := strings.Cut(r.files[composeFile], "\n  "+name+":\n")
	section, _, _ = strings.Cut(section, "\n\n")
	for _, line := range lines {
		if !strings.Contains(section+"\n", line+"\n") {
			r.fault("%s: service %q has no line %s", composeFile, name, line)
		}
	}
}

// faults lists where the files do not fit together. Grafana and Prometheus would start
// all the same, and show nothing.
func (p provisioning) faults() []string {
	r := &reader{files: p}
	r.service("grafana",
		"- ./deploy/grafana/provisioning:/etc/grafana/provisioning:ro",
		"- ./deploy/grafana/dashboards:"+r.one(providerFile, `^ +path: (\S+)$`)+":ro")

	port := r.one(datasourceFile, `^ +url: http://[^:]+:(\d+)$`)
	r.service(r.one(datasourceFile, `^ +url: http://([^:]+):\d+$`),
		"- ./deploy/prometheus/prometheus.yml:/etc/prometheus/prometheus.yml:ro", // so that it is Prometheus
		"- ./deploy/prometheus/alerts.yml:"+r.one(prometheusFile, `^ +- (/\S+\.yml)$`)+":ro",
		`- "127.0.0.1:`+port+`:`+port+`"`,
		`- "`+r.one(prometheusFile, `^ +- targets: \["(host[^:]+):\d+"\]$`)+`:host-gateway"`)
	if step, every := r.one(datasourceFile, `^ +timeInterval: (\S+)$`),
		r.one(prometheusFile, `^ +scrape_interval: (\S+)$`); step != every {
		r.fault("%s: a timeInterval of %s, scraped is every %s", datasourceFile, step, every)
	}
	r.datasource()

	scraped := r.one(prometheusFile, `^ +- targets: \["host[^:]+:(\d+)"\]$`)
	r.service(r.one(prometheusFile, `^ +- targets: \["(emailer):`+scraped+`"\]$`),
		"dockerfile: "+strings.TrimPrefix(dockerfile, "../"),
		`command: ["-redis=redis:6379", "-smtp=mailpit:1025", "-metrics=:`+scraped+`"]`)
	for name, pattern := range map[string]string{
		composeFile:    `-metrics [\d.]+:(\d+)`,
		prometheusFile: `-metrics …:(\d+)`,
		emailerReadme:  `-metrics [\d.]+:(\d+)`,
		emailerOptions: `(?s)"metrics",.{1,80}?such as [\d.]+:(\d+)`,
	} {
		for _, told := range r.all(name, pattern) {
			if told != scraped {
				r.fault("%s: -metrics at port %s, scraped is %s", name, told, scraped)
			}
		}
	}
	return r.faults
}

// datasource compares the data source of the dashboard with the provisioned one: by its uid, or by
// a variable, which stands for the default data source of its type.
func (r *reader) datasource() {
	type source struct{ Type, UID string }
	there := source{r.one(datasourceFile, `^ +type: (\S+)$`), r.one(datasourceFile, `^ +uid: (\S+)$`)}
	var dashboard struct {
		Panels []struct {
			Datasource source
			Targets    []struct{ Datasource source }
		}
		Templating struct {
			List []struct {
				Name, Type string
				Query      any
				Datasource *source
			}
		}
	}
	if err := json.Unmarshal([]byte(r.files[dashboardFile]), &dashboard); err != nil {
		r.fault("%s: %v", dashboardFile, err)
	}
	var asked []source
	known := map[source]bool{there: true}
	for _, variable := range dashboard.Templating.List {
		if variable.Datasource != nil {
			asked = append(asked, *variable.Datasource)
		}
		if variable.Type == "datasource" && variable.Query == there.Type &&
			r.one(datasourceFile, `^ +isDefault: (\S+)$`) == "true" {
			known[source{there.Type, "${" + variable.Name + "}"}] = true
		}
	}
	for _, panel := range dashboard.Panels {
		asked = append(asked, panel.Datasource)
		for _, target := range panel.Targets {
			asked = append(asked, target.Datasource)
		}
	}
	for _, one := range asked {
		if !known[one] {
			r.fault("%s asks for %+v, provisioned is %+v", dashboardFile, one, there)
		}
	}
}

// TestProvisioningFits: the dashboard is where Grafana looks for it, it asks Prometheus at the right
// address, and Prometheus scrapes where the docs tell users to serve.
func TestProvisioningFits(t *testing.T) {
	t.Parallel()
	for _, fault := range provisioned(t).faults() {
		t.Error(fault)
	}
}

// TestProvisioningIsRead: each fault would be found.
func TestProvisioningIsRead(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ file, is, other string }{
		{composeFile, "/grafana/dashboards:/var/lib/", "/grafana/dashboards:/srv/"},
		{composeFile, ":/etc/grafana/provisioning:", ":/etc/grafana/provision:"},
		{composeFile, "\n  prometheus:\n", "\n  metrics:\n"},
		{composeFile, "127.0.0.1:9090:9090", "127.0.0.1:9090:9091"},
		{composeFile, ":/etc/prometheus/prometheus.yml:", ":/etc/prometheus.yml:"},
		{composeFile, "host.docker.internal:", "host.internal:"},
		{composeFile, "-metrics 127.0.0.1:9464", "-metrics 127.0.0.1:9465"},
		{providerFile, "path: /var/lib/grafana/dashboards", "path: /var/lib/grafana"},
		{datasourceFile, "http://prometheus:", "http://localhost:"},
		{datasourceFile, ":9090", ":9091"},
		{datasourceFile, "type: prometheus", "type: loki"},
		{datasourceFile, "isDefault: true", "isDefault: false"},
		{datasourceFile, "timeInterval: 1s", "timeInterval: 15s"},
		{dashboardFile, `"uid": "${datasource}"`, `"uid": "${source}"`},
		{dashboardFile, `"name": "datasource"`, `"name": "source"`},
		{dashboardFile, `"query": "prometheus"`, `"query": "loki"`},
		{prometheusFile, "internal:9464", "internal:9465"},
		{prometheusFile, "/etc/prometheus/alerts.yml", "/etc/alerts.yml"},
		{prometheusFile, "host.docker.internal:", "localhost:"},
		{emailerReadme, "-metrics 172.17.0.1:9464", "-metrics 172.17.0.1:9465"},
		{emailerOptions, "such as 127.0.0.1:9464", "such as 127.0.0.1:9465"},
	} {
		files := provisioned(t)
		broken := strings.Replace(files[row.file], row.is, row.other, 1)
		if broken == files[row.file] {
			t.Errorf("%s has no %q: this test has gone blind", row.file, row.is)
		}
		files[row.file] = broken
		if len(files.faults()) == 0 {
			t.Errorf("%s with %q for %q is not found", row.file, row.other, row.is)
		}
	}
}
