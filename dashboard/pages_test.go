package dashboard_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/asynq-throttle/asynq-throttle/dashboard"
	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/throttle"
	"github.com/asynq-throttle/asynq-throttle/worker"
)

// escaped is a hostile name in a page's text.
const escaped = `&lt;script&gt;alert(&#34;1&#34;)&lt;/script&gt;`

// TestPages: each page shows its content, under any prefix.
func TestPages(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", hostile,
		[]throttle.Limit{throttle.PerHour(2), throttle.PerDay(1000)}); err != nil {
		t.Fatal(err)
	}
	root := w.pages(&dashboard.Options{Asynqmon: "http://127.0.0.1:8080/",
		Stats: func() worker.Stats { return worker.Stats{PutBack: 7, Granted: 11} }})
	h := http.NewServeMux()
	h.Handle("/", root)
	h.Handle("GET /admin/throttle/", root)
	h.Handle("/stripped/", http.StripPrefix("/stripped", root))
	for _, c := range []struct {
		page   string
		status int
		has    []string
	}{
		{"", 200, []string{"<b>6</b> jobs of 2 flows", "configured alike", "7 in all, 11 granted", escaped,
			"gmail.example", "<strong>paused</strong> until", "2/1h", "2 of 2 used", ">serves 60 %</span>"}},
		{"key?scope=tenant&key=acme", 200, []string{"tenant <bdi>acme</bdi>", "as configured",
			"<b>3</b> jobs of 1 flow", "Started in the last 1h00m", "Try"}},
		{"key?scope=tenant&key=" + url.QueryEscape(hostile), 200,
			[]string{escaped, "set at run time for the key", "1000/24h", "limits"}},
		{"key?scope=global&key=", 200, []string{"100/1h", "4<span", ">serves 60 %</span>"}},
		{"key?scope=domain&key=gmail.example", 200, []string{"<strong>paused</strong> until", "Changed here"}},
		{"key?scope=connections&key=web.example", 200, []string{"2/running", "0 of 2 used"}},
		{"key?scope=tenant&key=nobody", 200, []string{"Nothing waits for it.", "0 of 2 used", "<dd>open</dd>"}},
		{"key?scope=tenant&key=acme&limits=1/1h", 200,
			[]string{"2 started in its last window", "1 would have been kept back"}},
		{"key?scope=tenant&key=acme&limits=nonsense", 400, []string{"nonsense"}},
		{"key?scope=domain&key=+spaces+", 200, []string{`<bdi>\x20spaces\x20</bdi>`}},
		{"key?scope=host&key=x", 404, []string{"no such scope"}},
		{"key?scope=tenant&key=", 404, []string{"Name a key"}},
		{"key?scope=global&key=x", 404, []string{"has no keys"}},
		{"job?id=mail-4-4", 200, []string{"in line", "2 of 3 jobs", "tenant <bdi>acme</bdi>", "mail:send",
			">serves 60 %</span>", "http://127.0.0.1:8080/queues/mails/tasks/mail-4-4", "scheduled"}},
		{"job?id=" + url.QueryEscape(worker.JobID("mails", "mail-4-3", 0)), 200,
			[]string{"<dt>State in asynq</dt><dd>not known to asynq</dd>"}},
		{"job?id=" + url.QueryEscape(hostile), 404, []string{escaped, "knows nothing of it"}},
		{"job?id=", 400, []string{"Name the ID"}},
		{"changes", 200, []string{"In force now", "pause", "gmail.example", "limits", escaped,
			"Look through all scope keys"}},
		{"changes?all=1", 200, []string{"2/1h, 1000/24h", "gmail.example"}},
		{"processes", 200, []string{"1 process is alive, configured alike.", "100/1h"}},
		{"style.css", 200, []string{"prefers-color-scheme: dark"}},
		{"live.js", 200, []string{"EventSource"}},
		{"icon.svg", 200, []string{"<svg"}},
		{"nonsense", 404, []string{"There is no page nonsense.", `href="style.css"`}},
		{"x/processes", 404, nil},
		{"x/", 404, nil},
		{"events?page=nonsense", 404, nil},
		{"events?page=key&scope=host&key=x", 404, nil},
	} {
		for _, prefix := range []string{"/", "/admin/throttle/", "/stripped/"} {
			got := get(t.Context(), h, prefix+c.page)
			if got.status != c.status {
				t.Errorf("%s%s: status %d, want %d\n%s", prefix, c.page, got.status, c.status, got.text)
			}
			for _, text := range c.has {
				if !strings.Contains(got.text, text) {
					t.Errorf("%s%s lacks %q\n%s", prefix, c.page, text, got.text)
				}
			}
			for _, text := range []string{"<script>alert", "/admin", "/stripped", `style="`, "ZgotmplZ", "%!"} {
				if strings.Contains(got.text, text) {
					t.Errorf("%s%s has %q\n%s", prefix, c.page, text, got.text)
				}
			}
			policy := got.header.Get("Content-Security-Policy")
			if !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s%s: policy %q", prefix, c.page, policy)
			}
		}
	}
}

// TestServedStandsWithItsLimit: a page mentions the served share only if it is less than all.
func TestServedStandsWithItsLimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	got := get(t.Context(), w.pages(nil), "/job?id=mail-4-4")
	if n := strings.Count(got.text, ">serves "); n != 1 || !strings.Contains(got.text, ">serves 60 %<") {
		t.Errorf("%d limits are said to be served less, want that of all\n%s", n, got.text)
	}
}

// TestQuotaBeginsAnew: the pages of a scope key and of a job say when a quota begins anew.
func TestQuotaBeginsAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", "acme",
		[]throttle.Limit{throttle.PerHour(2), throttle.PerCalendarMonth(900, "Asia/Kolkata")}); err != nil {
		t.Fatal(err)
	}
	h := w.pages(&dashboard.Options{})
	for _, page := range []string{"key?scope=tenant&key=acme", "job?id=mail-4-4"} {
		if got := get(t.Context(), h, "/"+page); !strings.Contains(got.text, "900/month@Asia/Kolkata") ||
			!strings.Contains(got.text, "now, anew <time") {
			t.Errorf("%s says\n%s", page, got.text)
		}
	}
}

// TestHoursAreShown: the pages of a scope key and of a job say until when hours are closed.
func TestHoursAreShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	later := time.Now().UTC().AddDate(0, 0, 3).Format("Mon")
	if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", "acme",
		[]throttle.Limit{throttle.PerHour(2), throttle.OpenHours(later + " 00:00-24:00 @UTC")}); err != nil {
		t.Fatal(err)
	}
	h := w.pages(&dashboard.Options{})
	if got := get(t.Context(), h, "/job?id=mail-4-4"); !strings.Contains(got.text, "tenant acme is closed until "+later) {
		t.Errorf("the page of the job says\n%s", got.text)
	}
	for _, page := range []string{"key?scope=tenant&key=acme", "job?id=mail-4-4"} {
		if got := get(t.Context(), h, "/"+page); !strings.Contains(got.text, "open "+later+" 00:00-24:00 @UTC") ||
			!strings.Contains(got.text, "closed until "+later+" 00:00 UTC (in ") {
			t.Errorf("%s says\n%s", page, got.text)
		}
	}
}

// TestRampIsShown: the pages of a scope key and of a job say which units of a ramp are in force.
func TestRampIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ramp := "2 5/day from " + time.Now().UTC().AddDate(0, 0, -1).Format(time.DateOnly) + " @UTC"
	if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", "acme",
		[]throttle.Limit{throttle.Ramp(ramp)}); err != nil {
		t.Fatal(err)
	}
	h := w.pages(&dashboard.Options{})
	for _, page := range []string{"key?scope=tenant&key=acme", "job?id=mail-4-4"} {
		if got := get(t.Context(), h, "/"+page); !strings.Contains(got.text, "ramp "+ramp+", now 5") {
			t.Errorf("%s says\n%s", page, got.text)
		}
	}
}

// TestReadOnlyByDefault: there are no buttons, and a change is refused.
func TestReadOnlyByDefault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(nil)
	if got := get(t.Context(), h, "/key?scope=tenant&key=acme"); strings.Contains(got.text, `method="post"`) ||
		strings.Contains(got.text, "formmethod") {
		t.Error("a page has buttons that change something")
	}
	if got := post(t.Context(), h, "do", "pause", "scope", "tenant", "key", "acme", "for", "1h"); got.status !=
		http.StatusForbidden {
		t.Errorf("status %d", got.status)
	}
	for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
		if got := ask(h, httptest.NewRequestWithContext(t.Context(), method, "/key", http.NoBody)); got.status !=
			http.StatusMethodNotAllowed {
			t.Errorf("%s: status %d", method, got.status)
		}
	}
	if got := ask(h, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/changes",
		http.NoBody)); got.status != http.StatusMethodNotAllowed {
		t.Errorf("status %d", got.status)
	}
}

// TestScopeThatIsOff: the page of a key in a scope that is off is shown, and so are the other pages.
func TestScopeThatIsOff(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(nil)
	if err := inspect.New(w.throttle).SetMode(t.Context(), "tenant", throttle.Off); err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"/key?scope=tenant&key=fresh", "/", "/processes"} {
		if got := get(t.Context(), h, page); got.status != http.StatusOK {
			t.Errorf("%s: status %d\n%s", page, got.status, got.text)
		}
	}
}

// TestShadowDelaysNothing: where limits and pauses are in shadow, no page says that they hold a job back.
func TestShadowDelaysNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, scope := range []string{"tenant", "domain"} {
		if err := inspect.New(w.throttle).SetMode(t.Context(), scope, throttle.Shadow); err != nil {
			t.Fatal(err)
		}
	}
	h := w.pages(nil)
	for page, has := range map[string]string{
		"/key?scope=tenant&key=acme":          "wait for it (its turn has not come).</p>",
		"/key?scope=domain&key=gmail.example": "Nothing waits for it.</p>",
		"/job?id=mail-4-4":                    "Its turn has not come; expected to start",
		"/":                                   "its turn has not come",
	} {
		text := get(t.Context(), h, page).text
		if !strings.Contains(text, has) || !strings.Contains(text, `<td data-label="room">shadow: nothing is delayed</td>`) ||
			strings.Contains(text, "Paused: nothing") || strings.Contains(text, "2/1h, 2 used") {
			t.Errorf("%s: want %q\n%s", page, has, text)
		}
	}
}

// TestRedisAway: without Redis, one line of the page says so above the last reading; when Redis is
// back, the line is gone.
func TestRedisAway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.pages(nil)
	if got := get(t.Context(), h, "/"); got.status != http.StatusOK {
		t.Fatalf("status %d", got.status)
	}
	w.server.SetError("LOADING Redis is loading the dataset in memory")
	got := until(t, h, http.StatusServiceUnavailable)
	if !strings.Contains(got.text, `role="alert"`) ||
		!strings.Contains(got.text, "What follows is how it was at") || !strings.Contains(got.text, "<b>6</b> jobs") {
		t.Errorf("got\n%s", got.text)
	}
	w.server.SetError("")
	if got := until(t, h, http.StatusOK); strings.Contains(got.text, `role="alert"`) {
		t.Errorf("got\n%s", got.text)
	}
}

// until requests the overview until it has a status: Redis is read only once a second.
func until(t *testing.T, h http.Handler, status int) answer {
	t.Helper()
	var got answer
	redistest.Await(t, fmt.Sprint("the overview has status ", status), func() bool {
		got = get(t.Context(), h, "/")
		return got.status == status
	})
	return got
}

// TestNothingKnownYet: for a throttle that no process has published, and for a Redis that was never
// there, the page has one line each.
func TestNothingKnownYet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nobody, err := dashboard.New("nobody", w.client, nil)
	if err != nil {
		t.Fatal(err)
	}
	away := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1, DialTimeout: 50 * time.Millisecond})
	t.Cleanup(func() { _ = away.Close() })
	gone, err := dashboard.New("smtp", away, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []http.Handler{nobody, gone} {
		for _, page := range []string{"/", "/key?scope=tenant&key=acme", "/job?id=x", "/changes?all=1", "/processes"} {
			got := get(t.Context(), h, page)
			if got.status != http.StatusServiceUnavailable || strings.Count(got.text, `role="alert"`) != 1 {
				t.Errorf("%s: status %d\n%s", page, got.status, got.text)
			}
		}
	}
}

// TestNoReadWhileNobodyLooks: a handler without requests does not call Redis.
func TestNoReadWhileNobodyLooks(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.server.CommandCount()
	commands := func() int { return w.server.CommandCount() - before }
	h := w.pages(nil)
	get(t.Context(), h, "/style.css")
	if n := commands(); n != 0 {
		t.Errorf("New and a style sheet ask Redis %d times", n)
	}
	began := time.Now()
	get(t.Context(), h, "/")
	first := commands()
	const more = 50
	for range more {
		get(t.Context(), h, "/processes")
	}
	seconds := int(time.Since(began)/time.Second) + 1 // the board is read once in each
	if n := commands(); first == 0 || n > (seconds+1)*first {
		t.Errorf("one page: %d commands, with %d more in %d s: %d", first, more, seconds, n)
	}
}

// TestEvents: a browser that shows a scope key receives its changes.
func TestEvents(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	server := httptest.NewServer(w.pages(nil))
	t.Cleanup(server.Close)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
		server.URL+"/events?page=key&scope=tenant&key=acme", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	if kind := response.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("type %q", kind)
	}
	if _, err := inspect.New(w.throttle).Pause(t.Context(), "tenant", "acme", time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	var heard strings.Builder
	some := make([]byte, 4096)
	for !strings.Contains(heard.String(), "data: <div><dt>State</dt><dd><strong>paused</strong>") {
		n, err := response.Body.Read(some)
		heard.Write(some[:n])
		if err != nil {
			t.Fatalf("%v: %s", err, heard.String())
		}
	}
}

// TestOptions: New returns an error for invalid options.
func TestOptions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, url := range []string{"127.0.0.1:8080", "javascript:alert(1)", "http://", "ftp://host"} {
		if _, err := dashboard.New("smtp", w.client, &dashboard.Options{Asynqmon: url}); err == nil {
			t.Errorf("%q is taken for asynqmon's URL", url)
		}
	}
	if _, err := dashboard.New("smtp", nil, nil); err == nil {
		t.Error("no client is taken")
	}
}

// TestOlderPauseIsShown: a dashboard that starts anew shows the paused keys, however many changes
// were made since.
func TestOlderPauseIsShown(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i := range 210 {
		if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", "acme",
			[]throttle.Limit{throttle.PerHour(int64(3 + i%2))}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		if err := inspect.New(w.throttle).SetLimits(t.Context(), "tenant", fmt.Sprint("t", i),
			[]throttle.Limit{throttle.PerHour(7)}); err != nil {
			t.Fatal(err)
		}
	}
	h := w.pages(nil)
	for _, page := range []string{"/", "/changes"} {
		got := get(t.Context(), h, page)
		if n := strings.Count(got.text, "<bdi>gmail.example</bdi>"); n == 0 {
			t.Errorf("%s: the pause is not told\n%s", page, got.text)
		}
	}
	limits, _, _ := strings.Cut(get(t.Context(), h, "/").text, "How it goes")
	if _, limits, _ = strings.Cut(limits, "<h2>Limits</h2>"); !strings.Contains(limits, "gmail.example") {
		t.Errorf("the paused key is not among the limits\n%s", limits)
	}
}

// TestBacklogOnTheOverview: the chart of the processes' notes stands between the settings in force
// and the limits.
func TestBacklogOnTheOverview(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if got := get(t.Context(), w.pages(nil), "/"); strings.Contains(got.text, "Over the last") {
		t.Errorf("a chart is drawn of nothing\n%s", got.text)
	}
	for ago := 90; ago > 0; ago-- {
		at := time.Now().Add(-time.Duration(ago) * time.Minute)
		note := fmt.Sprint(at.UnixMicro(), ago*10, ago*1_000_000)
		if err := w.client.LPush(t.Context(), "thr:{smtp}:4:backlog", note).Err(); err != nil {
			t.Fatal(err)
		}
	}
	got := get(t.Context(), w.pages(nil), "/").text
	_, rest, _ := strings.Cut(got, "<h2>In force</h2>")
	chart, _, is := strings.Cut(rest, "<h2>Limits</h2>")
	for _, text := range []string{"Over the last 3 hours", "Jobs in line: <b>10</b>", "900 at most",
		"Longest wait: <b>1s</b>", "1m30s at most"} {
		if !is || !strings.Contains(chart, text) {
			t.Errorf("the chart lacks %q\n%s", text, chart)
		}
	}
	if bars := strings.Count(chart, "<rect "); bars != 2*24 && bars != 2*25 {
		t.Errorf("%d bars, want two times half of 48", bars)
	}
}
