package robots

import (
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/link"
	"github.com/asynq-throttle/asynq-throttle/internal/longtest"
)

func TestRobotsAllows(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, text, path, want string }{
		{"nothing", "", "/a", "yes"},
		{"disallowed", "User-agent: *\nDisallow: /private/", "/private/a", "no"},
		{"beside it", "User-agent: *\nDisallow: /private/", "/privateer", "yes"},
		{"empty disallow", "User-agent: *\nDisallow:", "/a", "yes"},
		{"all disallowed", "User-agent: *\nDisallow: /", "/", "no"},
		{"but for robots.txt", "User-agent: *\nDisallow: /", "/robots.txt", "yes"},
		{"our group instead of all", "User-agent: *\nDisallow: /\nUser-agent: crawler\nAllow: /a", "/b", "yes"},
		{"whatever the order and case", "User-agent: CRAWLER/2.0\nDisallow: /b\nUser-agent: *\nAllow: /", "/b", "no"},
		{"a longer name is another's", "User-agent: crawlerbot\nDisallow: /", "/a", "yes"},
		{"a shorter name is another's", "User-agent: crawl\nDisallow: /", "/a", "yes"},
		{"our groups are one",
			"User-agent: crawler\nDisallow: /a\n\nUser-agent: x\nDisallow: /c\n\nUser-agent: crawler\nDisallow: /b", "/b", "no"},
		{"several names", "User-agent: x\nUser-agent: crawler\nDisallow: /a", "/a", "no"},
		{"a rule ends the names", "User-agent: crawler\nDisallow: /a\nUser-agent: x\nDisallow: /b", "/b", "yes"},
		// RFC 9309, 2.2.4
		{"a sitemap does not", "User-agent: crawler\nSitemap: http://x/\nUser-agent: x\nDisallow: /b", "/b", "no"},
		{"nor does a delay", "User-agent: crawler\nCrawl-delay: 2\nUser-agent: *\nDisallow: /b", "/b", "no"},
		{"a delay after the rules",
			"User-agent: crawler\nDisallow: /a\nCrawl-delay: 2\nUser-agent: x\nDisallow: /b", "/b", "yes"},
		{"before any group", "Disallow: /\nUser-agent: *\nDisallow: /b", "/a", "yes"},
		{"the longest wins", "User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", "yes"},
		{"also if it forbids", "User-agent: *\nAllow: /a\nDisallow: /a/b", "/a/b/c", "no"},
		{"of two as long the one that allows", "User-agent: *\nDisallow: /ab\nAllow: /a*", "/abc", "yes"},
		{"star", "User-agent: *\nDisallow: /*.php", "/a/b.php?x=1", "no"},
		{"end", "User-agent: *\nDisallow: /*.php$", "/a/b.php?x=1", "yes"},
		{"star and end", "User-agent: *\nDisallow: /*.php$", "/a.php/b.php", "no"},
		{"star at the end", "User-agent: *\nDisallow: /a*$", "/abc", "no"},
		{"two stars", "User-agent: *\nDisallow: /*a*b", "/xxaxxbxx", "no"},
		{"a dollar inside is itself", "User-agent: *\nDisallow: /a$b", "/a$bc", "no"},
		{"query", "User-agent: *\nDisallow: /*?print=", "/page?print=1", "no"},
		{"lower case escapes", "User-agent: *\nDisallow: /%c3%a4/", "/%C3%A4/", "no"},
		{"no escapes", "User-agent: *\nDisallow: /ä/", "/%C3%A4/", "no"},
		{"needless escapes", "User-agent: *\nDisallow: /%7euser", "/~user", "no"},
		{"comments and blanks", "user-AGENT :  *  # all\n disallow\t:\t/a # here", "/a", "no"},
		{"BOM and CRLF", "\uFEFFUser-agent: *\r\nDisallow: /a\r\n", "/a", "no"},
		{"CR alone", "User-agent: *\rDisallow: /a\r", "/a", "no"},
		{"binary", "\x00\xff\xfe\x01User-agent\x00: *\nDisallow: /", "/a", "yes"},
		{"HTML", "<html><body>User-agent: *</body></html>", "/a", "yes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			got := "no"
			if Parse(row.text, "crawler").Allows(row.path) {
				got = "yes"
			}
			if got != row.want {
				t.Errorf("%q for %s: got %s, want %s", row.text, row.path, got, row.want)
			}
		})
	}
}

func TestCrawlDelay(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		value string
		want  time.Duration
	}{
		{"1", time.Second}, {"0.5", 500 * time.Millisecond}, {"10", 10 * time.Second},
		{"0", 0}, {"-1", 0}, {"abc", 0}, {"", 0}, {"NaN", 0}, {"1s", 0}, {"1e-9", 0},
		{"1e9", maxCrawlDelay}, {"1e400", 0}, {"Inf", maxCrawlDelay},
	} {
		got := Parse("User-agent: *\nCrawl-delay: "+row.value, "crawler").Delay
		if got != row.want {
			t.Errorf("Crawl-delay %s: got %s, want %s", row.value, got, row.want)
		}
	}
}

// RFC 9309, 2.2.1 and 2.2.4: a delay does not end the names, so it is the whole group's.
func TestCrawlDelayOfAGroup(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, text string
		want       time.Duration
	}{
		{"ours instead of all", "User-agent: crawler\nCrawl-delay: 3\nAllow: /\n\nUser-agent: *\nCrawl-delay: 9",
			3 * time.Second},
		{"none instead of all", "User-agent: crawler\nAllow: /\n\nUser-agent: *\nCrawl-delay: 9", 0},
		{"another's", "User-agent: x\nCrawl-delay: 9\nAllow: /\n\nUser-agent: crawler\nAllow: /", 0},
		{"below all names", "User-agent: crawler\nUser-agent: x\nCrawl-delay: 3", 3 * time.Second},
		{"above our name", "User-agent: x\nCrawl-delay: 3\n\nUser-agent: crawler\nDisallow: /a", 3 * time.Second},
		{"above that of all", "User-agent: x\nCrawl-delay: 3\n\nUser-agent: *\nDisallow: /a", 3 * time.Second},
		{"the longer below", "User-agent: crawler\nCrawl-delay: 3\n\nUser-agent: *\nCrawl-delay: 9", 9 * time.Second},
		{"the longer above", "User-agent: x\nCrawl-delay: 9\n\nUser-agent: crawler\nCrawl-delay: 3", 9 * time.Second},
		{"after the rules", "User-agent: crawler\nDisallow: /a\nCrawl-delay: 3\nDisallow: /b", 3 * time.Second},
		{"a group later", "User-agent: x\nDisallow: /a\nCrawl-delay: 9\nUser-agent: crawler\nDisallow: /a", 0},
		{"our groups are one",
			"User-agent: crawler\nCrawl-delay: 3\nAllow: /\nUser-agent: crawler\nCrawl-delay: 2\nAllow: /", 3 * time.Second},
		{"before any group", "Crawl-delay: 9\nUser-agent: *\nDisallow: /a", 0},
	} {
		if got := Parse(row.text, "crawler").Delay; got != row.want {
			t.Errorf("%s: %q: got %s, want %s", row.name, row.text, got, row.want)
		}
	}
}

// F65: the rules that follow from an answer to the request for robots.txt.
func TestRobotsTextAfterAnswer(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /a\n"
	for _, row := range []struct {
		status int
		body   string
		a, b   bool // whether /a and /b are allowed
	}{
		{200, text, false, true},
		{204, "", true, true},
		{302, text, true, true}, // one redirect too many, or one to nowhere
		{400, text, true, true},
		{401, text, true, true},
		{403, text, true, true},
		{404, text, true, true},
		{429, text, false, false},
		{500, text, false, false},
		{503, text, false, false},
		{0, "", false, false}, // no answer at all
	} {
		r := Parse(Text(row.status, []byte(row.body)), "crawler")
		if r.Allows("/a") != row.a || r.Allows("/b") != row.b {
			t.Errorf("status %d: /a %v, /b %v; want %v, %v", row.status, r.Allows("/a"), r.Allows("/b"), row.a, row.b)
		}
	}
	large := text + strings.Repeat("# filler\n", 5<<20/9) + "Disallow: /b\n"
	if r := Parse(Text(200, []byte(large)), "crawler"); r.Allows("/a") || !r.Allows("/b") {
		t.Error("of a robots.txt of 5 MB the first 500 KB are to be read")
	}
}

// Any file can be parsed and its rules asked, and the answer comes soon.
func FuzzRobots(f *testing.F) {
	f.Add("User-agent: *\nDisallow: /*a*b$\nCrawl-delay: 1e300", "/a?b")
	f.Add("\uFEFFuser-agent:crawler\rallow:%\xff#", "/%FF")
	f.Fuzz(func(t *testing.T, text, path string) {
		r := Parse(text, "crawler")
		if r.Delay < 0 || r.Delay > maxCrawlDelay {
			t.Errorf("delay %s", r.Delay)
		}
		if !r.Allows(Path) {
			t.Error("robots.txt itself is forbidden")
		}
		if r.Allows(path) && len(r.rules) == 1 && !r.rules[0].allow && r.rules[0].pattern == path &&
			!strings.ContainsAny(path, "*$") && path != Path {
			t.Errorf("%q is allowed though it is forbidden by name", path)
		}
	})
}

// A hostile pattern must not take long: there are up to 500 KB of them, and they
// are matched with every page of their host.
func TestHostilePatternIsQuick(t *testing.T) {
	t.Parallel()
	r := Parse("User-agent: *\nDisallow: "+strings.Repeat("*a", maxRobots/2-20)+"$", "crawler")
	began := time.Now()
	for range 100 {
		r.Allows("/" + strings.Repeat("a", link.MaxURL-1))
	}
	if took := time.Since(began); longtest.Full() && took > 5*time.Second {
		t.Errorf("100 times took %s", took)
	}
}
