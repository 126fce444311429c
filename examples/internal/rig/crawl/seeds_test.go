package crawl

import (
	"strings"
	"testing"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/site"
)

func TestParseSeeds(t *testing.T) {
	t.Parallel()
	seeds,
		err := parseSeeds(strings.NewReader(
		"\uFEFFcustomer,url\nacme, http://Alder.example\n\"Globex, Inc.\",https://birch.example/a?b#c\n"))
	if err != nil || len(seeds) != 2 {
		t.Fatalf("got %v, %v", seeds, err)
	}
	if seeds[0].Customer != "acme" || seeds[0].URL.String() != "http://alder.example/" {
		t.Errorf("got %+v", seeds[0])
	}
	if seeds[1].Customer != "Globex, Inc." || seeds[1].URL.String() != "https://birch.example/a?b" {
		t.Errorf("got %+v", seeds[1])
	}
}

func TestParseSeedsRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ text, want string }{
		{"", "first line is not customer,url"},
		{"url,customer\n", "first line is not customer,url"},
		{"customer,url\n", "there are none"},
		{"customer,url\nacme\n", "wrong number of fields"},
		{"customer,url\n,http://alder.example/\n", "line 2: customer is not 1 to 64 bytes"},
		{"customer,url\nacme,alder.example\n", `line 2: url "alder.example" is neither http nor https`},
		{"customer,url\nacme,http://alder.example/\nacme,http://user@alder.example/\n", "line 3: url"},
	} {
		if _, err := parseSeeds(strings.NewReader(row.text)); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got %v, want %q", row.text, err, row.want)
		}
	}
}

func TestBundledSeedsAreOfTheBundledWeb(t *testing.T) {
	t.Parallel()
	list, err := OpenSeeds("")
	if err != nil {
		t.Fatal(err)
	}
	hosts := make(map[string]bool)
	for _, one := range site.Bundled() {
		hosts[one.Host] = true
	}
	customers := make(map[string]bool)
	for _, s := range list.Seeds {
		if !hosts[s.URL.Host] {
			t.Errorf("%s is no host of the bundled web", s.URL.Host)
		}
		customers[s.Customer] = true
	}
	if len(list.Seeds) != len(hosts) || len(customers) < 2 {
		t.Errorf("%d seeds of %d customers for %d hosts", len(list.Seeds), len(customers), len(hosts))
	}
}

func FuzzSeeds(f *testing.F) {
	f.Add("customer,url\nacme,http://alder.example/\n")
	f.Fuzz(func(t *testing.T, text string) {
		seeds, err := parseSeeds(strings.NewReader(text))
		if err == nil && len(seeds) == 0 {
			t.Error("no seeds and no error")
		}
		for _, s := range seeds {
			if s.Customer == "" || s.URL.Host == "" {
				t.Errorf("got %+v", s)
			}
		}
	})
}
