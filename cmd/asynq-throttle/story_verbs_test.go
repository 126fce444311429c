package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/spf13/cobra"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/redistest"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// session is a file of commands, run one after the other in a world.
var session = []string{
	"ls", "status smtp", "lines smtp", "lines smtp --by flow", "lines smtp --by lane --flow acme",
	"lines smtp --by lane -n 1",
	"job smtp acm-4", "job smtp mails/lone", "job smtp asynq:mails/hoo-0/0",
	"usage smtp", "usage smtp tenant", "usage smtp tenant acme", "usage smtp domain gmail.example", "usage smtp global",
	"limits get smtp", "limits set smtp tenant acme 1/1h --dry-run", "limits set smtp tenant 1/1h --dry-run",
	`limits set smtp tenant acme 5/1h,50/24h`, "limits set smtp tenant acme 6/1h", "limits get smtp tenant acme",
	"limits reset smtp tenant acme",
	"limits reset smtp tenant acme", "limits set smtp tenant 4/1h", "limits get smtp tenant", "limits reset smtp tenant",
	"pause smtp domain web.example --for 2h", "pause smtp domain web.example --for 1h",
	"resume smtp domain web.example", "resume smtp domain web.example",
	"mode smtp", "mode smtp tenant shadow", "mode smtp --all off", "mode smtp", "mode smtp --all reset",
	"mode smtp tenant reset",
	"forecast smtp --jobs 3 --key tenant=new", "forecast smtp --jobs 300 --key tenant=new",
	"check smtp", "changes smtp -n 3",
	"limits set smtp tenant acme 182/1h --for 4h --why spring", "limits get smtp tenant acme", "usage smtp tenant acme",
	"limits set smtp tenant acme 5/24h", "mode smtp tenant shadow --for 4h", "status smtp", "changes smtp -n 3",
	"mode smtp tenant reset", "limits reset smtp tenant acme",
	"purge smtp --dry-run", "purge smtp --flow acme", "purge smtp",
	"watch smtp --times 1",
}

// TestSession: all verbs, with what they say as text.
func TestSession(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		var b strings.Builder
		for _, line := range session {
			r := asked(t, client.Options().Addr, strings.Fields(line)...)
			fmt.Fprintf(&b, "$ asynq-throttle %s\n%s%s", line, r.out, r.errs)
			if r.status != 0 {
				fmt.Fprintf(&b, "exit status %d\n", r.status)
			}
			b.WriteByte('\n')
		}
		golden(t, "session", masked(b.String()))
	})
}

// TestJSON: each verb prints one document; its fields are those of the golden file.
func TestJSON(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		var b strings.Builder
		seen := make(map[string]bool)
		for _, line := range session {
			verb := strings.Join(strings.Fields(line)[:min(2, len(strings.Fields(line)))], " ")
			r := asked(t, client.Options().Addr, append(strings.Fields(line), "--json")...)
			var document any
			if err := json.Unmarshal([]byte(r.out), &document); err != nil {
				t.Errorf("%s: %v: %s %s", line, err, r.out, r.errs)
			}
			if seen[verb] {
				continue
			}
			seen[verb] = true
			fmt.Fprintf(&b, "$ asynq-throttle %s --json\n", line)
			fieldsOf(&b, "", document)
			b.WriteByte('\n')
		}
		if client.Info(t.Context(), "everything").Err() == nil { // miniredis does not describe itself
			golden(t, "json", b.String())
		}
	})
}

// fieldsOf lists the fields of a document with their kinds, of lists those of the first.
func fieldsOf(b *strings.Builder, path string, of any) {
	switch v := of.(type) {
	case map[string]any:
		for _, name := range sorted(v) {
			fieldsOf(b, path+"."+name, v[name])
		}
	case []any:
		if len(v) == 0 {
			fmt.Fprintf(b, "%s[]\n", path)
			return
		}
		fieldsOf(b, path+"[]", v[0])
	default:
		fmt.Fprintf(b, "%s %T\n", path, of)
	}
}

// TestOnCall: each of the ten questions in docs/operations.md is answered by the command
// that stands there.
func TestOnCall(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Ten questions")
	table, _, _ = strings.Cut(table, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| (.*?) \\| `asynq-throttle (.*?)`").FindAllStringSubmatch(table, -1)
	if len(rows) != 10 {
		t.Fatalf("%d questions, want 10", len(rows))
	}
	answers := []string{
		`(?m)^.big corp.|^acme`, `domain gmail.example`, `expected to start`, `tenant acme\s+2/1h\s+2\s+100 %`,
		`gmail.example: paused until .* by `,
		`before: not set`, `pause of domain mx.example: until`, `would have kept .* back`,
		`CONFIGURED\n.*as the newest`, `(?m)^Redis +(idle|busy|bottleneck|unknown)`,
	}
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for i, row := range rows {
			r := asked(t, client.Options().Addr, words(row[2])...)
			if r.status != 0 || !regexp.MustCompile(answers[i]).MatchString(r.out) {
				t.Errorf("%s\n$ asynq-throttle %s\n%s%s(exit status %d)\nwant %s", row[1], row[2], r.out, r.errs,
					r.status, answers[i])
			}
		}
	})
}

// words are the arguments of a command line with simple quotes.
func words(line string) []string {
	var list []string
	for _, match := range regexp.MustCompile(`"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		list = append(list, match[1]+match[2])
	}
	return list
}

// TestMistakes: each mistake has one line that says what to do, and an exit status other than 0.
func TestMistakes(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		addr := client.Options().Addr
		for line, want := range map[string]struct {
			status int
			text   string
		}{
			"status": {2,
				"which throttle? It is \"asynq-throttle status THROTTLE [flags]\", and asynq-throttle ls lists " +
					"them; see asynq-throttle status -h"},
			"limits set":       {2, "which throttle?"},
			"status smtp more": {2, "see asynq-throttle status -h"},
			"statsu smtp":      {2, "unknown command \"statsu\" of asynq-throttle: did you mean status?"},
			"limits got smtp": {2,
				"unknown command \"got\" of asynq-throttle limits: did you mean get or set?"},
			"xyzzyx": {2,
				"unknown command \"xyzzyx\" of asynq-throttle; see asynq-throttle -h"},
			"status smtp --nonsense":                 {2, "unknown flag: --nonsense; see asynq-throttle status -h"},
			"limits":                                 {2, "see asynq-throttle limits -h"},
			"completion":                             {2, "see asynq-throttle completion -h"},
			"completion bosh":                        {2, "unknown command \"bosh\" of asynq-throttle completion"},
			"watch smtp --times -1":                  {2, "it is 0 at least"},
			"lines smtp --scope global --key x":      {2, "has no keys"},
			"status smpt":                            {1, "there are: smtp"},
			"usage smtp tennant acme":                {2, "there are: global, tenant, domain"},
			"usage smtp global x":                    {2, "has no keys"},
			"lines smtp --by age":                    {2, "none of key, flow, lane"},
			"job smtp nothing":                       {1, "nothing is known of nothing"},
			"limits set smtp tenant acme 5":          {2, "want units/window, such as 100/1m"},
			"limits set smtp tenant acme 2/1h,3/1h":  {2, "3/1h: scope tenant has two limits of this kind"},
			"lines smtp -n -1":                       {2, "it is 1 row at least"},
			"usage smtp -n 0":                        {2, "it is 1 row at least"},
			"changes smtp -n -1":                     {2, "it is 1 row at least"},
			"pause smtp domain --for 1h":             {2, "name it"},
			"pause smtp domain x --for 1h --until 1": {2, "one of them, not both"},
			"pause smtp domain x":                    {2, "--for 2h"},
			"pause smtp domain x --until later":      {2, "is none of 18:00"},
			"pause smtp domain x --for running":      {2, "is not a duration"},
			"pause smtp domain x --for 30m@1s":       {2, "is not a duration"},
			"mode smtp tenant loud":                  {2, "none of enforce, shadow, off, reset"},
			"forecast smtp --key tenant":             {2, "is not SCOPE=KEY"},
			"forecast smtp": {2,
				"the scopes with keys are: tenant, domain; it is given as --key SCOPE=KEY"},
			"forecast smtp --key tenant=a --key tenant=b": {2, "a job has one key of a scope"},
			"forecast smtp --key tenant=a --cost tenant=1 --cost tenant=2": {2,
				"is given twice"},
			"forecast smtp --key tennant=a":           {2, "tennant names a scope this throttle does not have"},
			"forecast smtp --key tenant=a --weight 0": {2, "it is given as --weight"},
			"-u redis://127.0.0.1:1 ls":               {1, "is it up"},
			"-u redis://u:SECRET@127.0.0.1:1 ls":      {1, "redis://127.0.0.1:1 does not answer"},
			"-u nonsense://x ls":                      {2, "give a URL with -u or REDIS_URL"},
			"purge smtp --asynq nonsense://x":         {2, "give a URL"},
			"serve smpt":                              {1, "there are: smtp"},
			"serve smtp --listen 0.0.0.0:0":           {2, "is not on loopback"},
			"serve smtp --asynqmon localhost":         {2, "is no URL such as http://127.0.0.1:8080"},
		} {
			r := asked(t, addr, strings.Fields(line)...)
			if r.status != want.status || !strings.Contains(r.errs, want.text) ||
				strings.Count(r.errs, "\n") != 1 || r.out != "" || strings.Contains(r.errs, "SECRET") {
				t.Errorf("%s: exit status %d, %q, %q", line, r.status, r.errs, r.out)
			}
		}
	})
}

// TestNobodyPulls: status and lines say that no worker looks at jobs in line, rather than since when they have room.
func TestNobodyPulls(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		past := redis.Z{Score: float64(time.Now().Add(-10 * time.Minute).UnixMicro()), Member: "tenant:acme"}
		if err := client.ZAddXX(t.Context(), "thr:{smtp}:4:timers", past).Err(); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{"lines smtp", "lines smtp --by flow --flow acme", "status smtp"} {
			r := asked(t, client.Options().Addr, strings.Fields(line)...)
			if r.status != 0 || !strings.Contains(r.out, "no worker has looked at the line for 10m") {
				t.Errorf("%s: exit status %d, %s%s", line, r.status, r.out, r.errs)
			}
		}
	})
}

// TestNothingSelected: where jobs wait and a filter selects none of them, the answer is not that nothing waits.
func TestNothingSelected(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		want := "nothing waits that --flow, --scope and --key select\n"
		for _, line := range []string{"lines smtp --flow nobody", "lines smtp --scope tenant --key nobody"} {
			if r := asked(t, client.Options().Addr, strings.Fields(line)...); r.status != 0 || r.out != want {
				t.Errorf("%s: exit status %d, %s%s", line, r.status, r.out, r.errs)
			}
		}
	})
}

// TestEmptyNamesAreShown: a mistake with an empty name, such as a variable of a script that is not set, has a line in
// which the reader sees that it is empty, and the exit status of a wrong command line.
func TestEmptyNamesAreShown(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for _, row := range [][]string{
			{`throttle "": want 1 to 64 of A-Z a-z 0-9 _ . -`, "status", ""},
			{`throttle "a b": want 1 to 64`, "job", "a b", "x"},
			{`job's ID "" is empty`, "job", "smtp", ""},
			{"the key is empty: leave it out for all keys of the scope", "limits", "set", "smtp", "", "", "5/1h"},
			{`job's Keys "" names a scope`, "forecast", "smtp", "--key", "=x"},
			{`job's Costs "" names a scope`, "forecast", "smtp", "--key", "tenant=a", "--cost", "=1"},
		} {
			r := asked(t, client.Options().Addr, row[1:]...)
			if r.status != misused || r.out != "" || !strings.Contains(r.errs, row[0]) {
				t.Errorf("%q: %+v, want %q", row[1:], r, row[0])
			}
		}
	})
}

// TestMistakesOfADryRun: what is refused is refused in a dry run too, with the same line.
func TestMistakesOfADryRun(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		addr := client.Options().Addr
		for _, row := range [][]string{
			{"5", "want units/window"}, {"2/1h,3/1h", "two limits of this kind"},
			{"2/running@1s", "is shorter than twice the Lookahead"},
			{"5/1h", "is not a duration", "--for", "soon"}, {"5/1h", "is none of 18:00", "--until", "later"},
			{"5/1h", "one of them, not both", "--for", "1h", "--until", "18:00"},
			{"5/1h", "is past", "--until", "2020-01-01 18:00"},
			{"5/1h", "--until is more than 9600h away", "--until", "2999-01-01 18:00"},
			{"5/1h", "--why: 201 bytes are more than 200", "--why", strings.Repeat("y", 201)},
		} {
			args := append([]string{"limits", "set", "smtp", "tenant", "acme", row[0]}, row[2:]...)
			set, dry := asked(t, addr, args...), asked(t, addr, append(args, "--dry-run")...)
			if set != dry || dry.status != misused || dry.out != "" || !strings.Contains(dry.errs, row[1]) ||
				strings.Count(dry.errs, "\n") != 1 {
				t.Errorf("%q: %+v, in a dry run %+v, want %q", args, set, dry, row[1])
			}
		}
		const warning = "warning: no longer in force for tenant acme: 2/1h; "
		dry := asked(t, addr, "limits", "set", "smtp", "tenant", "acme", "5/24h", "--for", "1h", "--dry-run")
		if dry.status != 0 || !strings.HasPrefix(dry.errs, warning) {
			t.Errorf("%+v, want %q", dry, warning)
		}
		for _, line := range []string{"pause smtp tenant acme", "mode smtp tenant off"} {
			for flags, want := range map[string]string{
				"--until 2999-01-01T18:00:00Z":                    "--until is more than 9600h away",
				"--for 1h --why " + strings.Repeat("because", 30): "--why: 210 bytes are more than 200",
			} {
				r := asked(t, addr, strings.Fields(line+" "+flags)...)
				if r.status != misused || !strings.Contains(r.errs, want) {
					t.Errorf("%s %s: %+v, want %q", line, flags, r, want)
				}
			}
		}
	})
}

// TestEndOfNothing: an end is refused where nothing is set that could end, whatever it is.
func TestEndOfNothing(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for _, line := range []string{"mode smtp tenant reset", "mode smtp"} {
			for _, end := range []string{" --for 1h", " --until 18:00", " --for soon"} {
				r := asked(t, client.Options().Addr, strings.Fields(line+end)...)
				if r.status != misused || r.out != "" || !strings.Contains(r.errs, "nothing is set that could end: leave --for "+
					"and --until out") {
					t.Errorf("%s: %+v", line+end, r)
				}
			}
		}
	})
}

// TestEmptyNames: a scope or a key that is given and empty, such as a variable of a script that is not set, changes
// nothing.
func TestEmptyNames(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := world(t, client)
		for _, args := range [][]string{
			{"limits", "set", "smtp", "tenant", "", "0/1h"}, {"limits", "set", "smtp", "", "0/1h"},
			{"limits", "reset", "smtp", "tenant", ""}, {"ramp", "hold", "smtp", "tenant", ""},
			{"pause", "smtp", "domain", "", "--for", "1h"}, {"resume", "smtp", "domain", ""},
			{"pause", "smtp", "global", "", "--for", "1h"}, {"mode", "smtp", "", "off"}, {"mode", "smtp", "", "reset"},
			{"limits", "set", "smtp", "tenant", "acme", "5/1h", "--for", ""}, {"mode", "smtp", "tenant", "off", "--until", ""},
			{"pause", "smtp", "tenant", "acme", "--for", "1h", "--until", ""},
		} {
			r := asked(t, client.Options().Addr, args...)
			if r.status != misused || r.out != "" || strings.Count(r.errs, "\n") != 1 {
				t.Errorf("%q: exit status %d, %s%s", args, r.status, r.out, r.errs)
			}
		}
		if set, err := inspect.New(th).Settings(t.Context()); err != nil || len(set) != 1 { // the world's own pause
			t.Errorf("%+v, %v is set", set, err)
		}
	})
}

// TestLiftedLimits: new limits replace all others, and the command warns of those that they lift.
func TestLiftedLimits(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for _, row := range []struct{ line, want string }{
			{"limits set smtp tenant acme 5/running",
				"warning: no longer in force for tenant acme: 2/1h; also name the limits that should stay\n"},
			{"limits set smtp tenant acme 5/running,9/1h,7/1s", ""},
			{"limits set smtp tenant acme 9/1h,4/running",
				"warning: no longer in force for tenant acme: 7/1s; also name the limits that should stay\n"},
			{"limits set smtp tenant 3/1m",
				"warning: no longer in force for all keys of tenant: 2/1h; also name the limits that should stay\n"},
			{"limits set smtp tenant other 3/1h",
				"warning: no longer in force for tenant other: 3/1m; also name the limits that should stay\n"},
		} {
			if r := asked(t, client.Options().Addr, strings.Fields(row.line)...); r.status != 0 || r.errs != row.want {
				t.Errorf("%s: exit status %d, %q, want %q", row.line, r.status, r.errs, row.want)
			}
		}
	})
}

// TestForecastUnderARunningLimit: many jobs go by how long jobs run, also where the line is not
// played through.
func TestForecastUnderARunningLimit(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: throttle.Global, Runs: time.Minute, Limits: []throttle.Limit{throttle.Running(3)}}}
		th, err := throttle.New("crawl", client, scopes, &throttle.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 1}); err != nil {
			t.Fatal(err)
		}
		await(t, client, "crawl", 1)
		for _, exact := range []string{"", " --exact"} {
			line := "forecast crawl --json --jobs 5001" + exact
			r := asked(t, client.Options().Addr, strings.Fields(line)...)
			var f foreseen
			if err := json.Unmarshal([]byte(r.out), &f); err != nil {
				t.Fatalf("%s: %v\n%s%s", line, err, r.out, r.errs)
			}
			if took := f.Last.Sub(f.Now).Minutes(); took < 1600 || took > 1700 {
				t.Errorf("%s: the last starts after %.0f minutes; 5,001 take a minute each, three at once", line, took)
			}
		}
	})
}

// TestQuotas: the command says when a quota begins anew, and forecasts over the edges that follow.
func TestQuotas(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		scopes := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
			throttle.PerCalendarMonth(10, "Asia/Kolkata")}}}
		th, err := throttle.New("maps", client, scopes, &throttle.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 4}); err != nil {
			t.Fatal(err)
		}
		await(t, client, "maps", 1)
		for _, row := range []struct{ line, want string }{
			{"usage maps", "10/month@Asia/Kolkata  4     40 %  0       now, anew 20"},
			{"limits get maps", "global: 10/month@Asia/Kolkata\n"},
			{"limits set maps global 2/day+3h@Asia/Kolkata,5/week@UTC",
				"global: 2/day+3h@Asia/Kolkata, 5/week@UTC"},
		} {
			if r := asked(t, client.Options().Addr, strings.Fields(row.line)...); r.status != 0 ||
				!strings.Contains(r.out, row.want) {
				t.Errorf("%s: exit status %d, %s%s; want %q", row.line, r.status, r.out, r.errs, row.want)
			}
		}
		r := asked(t, client.Options().Addr, strings.Fields("forecast maps --json --jobs 9")...)
		var f foreseen
		if err := json.Unmarshal([]byte(r.out), &f); err != nil {
			t.Fatalf("%v\n%s%s", err, r.out, r.errs)
		}
		if took := f.Last.Sub(f.Now); took < 48*time.Hour || took > 15*24*time.Hour {
			t.Errorf("the last starts after %s; 9 start two a day, five a week", took)
		}
		if r := asked(t, client.Options().Addr, "limits", "set", "maps", "global", "2/day@Mars/Base"); r.status == 0 ||
			!strings.Contains(r.errs, `"Mars/Base" is no time zone`) {
			t.Errorf("exit status %d, %s", r.status, r.errs)
		}
	})
}

// TestOpeningHours: the command sets hours of one scope key, and says until when they are closed.
func TestOpeningHours(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th, err := throttle.New("calls", client, []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
			throttle.PerMinute(9)}}}, &throttle.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 4}); err != nil {
			t.Fatal(err)
		}
		await(t, client, "calls", 1)
		now := time.Now().UTC()
		text := fmt.Sprintf("9/1m, open %s 00:00-24:00, except %s @UTC", now.AddDate(0, 0, 3).Format("Mon"),
			now.Format(time.DateOnly))
		if r := asked(t, client.Options().Addr, "limits", "set", "calls", "global", text); r.status != 0 ||
			!strings.Contains(r.out, "open "+now.AddDate(0, 0, 3).Format("Mon")) {
			t.Errorf("exit status %d, %s%s", r.status, r.out, r.errs)
		}
		for _, line := range []string{"usage calls", "limits get calls global"} {
			if r := asked(t, client.Options().Addr, strings.Fields(line)...); r.status != 0 ||
				!strings.Contains(r.out, "closed until ") || !strings.Contains(r.out, " 00:00 UTC (in ") {
				t.Errorf("%s: exit status %d, %s%s", line, r.status, r.out, r.errs)
			}
		}
		for text, want := range map[string]string{"open Mon 09:00-25:00 @UTC": "no range of hours",
			"open Mon 09:00-17:00, Sat 10:00-12:00": "no time zone"} {
			if r := asked(t, client.Options().Addr, "limits", "set", "calls", "global", text); r.status == 0 ||
				!strings.Contains(r.errs, want) {
				t.Errorf("%s: exit status %d, %s", text, r.status, r.errs)
			}
		}
	})
}

// TestRamp: the command holds, continues and ends a ramp of all keys or of one, keeps the limits beside it, and says
// which units are in force.
func TestRamp(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		zone := "UTC"
		if time.Now().UTC().Hour() >= 22 { // a day that does not end soon
			zone = "America/Phoenix"
		}
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		today := time.Now().In(location)
		ramp := "ramp 50 100 200/day from " + today.AddDate(0, 0, -1).Format(time.DateOnly)
		held := ramp + " held " + today.Format(time.DateOnly) + " @" + zone
		ip := throttle.Scope{Name: "ip", Limits: []throttle.Limit{throttle.PerMinute(9),
			throttle.Ramp(strings.TrimPrefix(ramp, "ramp ") + " @" + zone)}}
		th, err := throttle.New("mails", client, []throttle.Scope{ip, {Name: throttle.Global}},
			&throttle.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		job := throttle.Job{ID: "a", Weight: 4, Keys: map[string]string{"ip": "a"}}
		if _, err := th.Reserve(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		await(t, client, "mails", 1)
		for _, step := range []struct{ line, want string }{
			{"usage mails ip a", ramp + " @" + zone + ", now 100"},
			{"limits get mails", "ip: 9/1m, " + ramp + " @" + zone},
			{"ramp continue mails ip a", "the ramp is not held"},
			{"ramp hold mails ip a --why deferrals", "limits of ip a: 9/1m, " + held + ", why: deferrals; before: not set"},
			{"limits get mails ip a", held + ", now 100"},
			{"usage mails ip a", "  4  "}, // what has started counts on
			{"ramp hold mails ip a", "held already"},
			{"changes mails -n 1", "deferrals"},
			{"ramp continue mails ip a", "limits of ip a: 9/1m, " + ramp + " @" + zone + "; before: 9/1m, " + held},
			{"ramp end mails ip a --for 4h", "limits of ip a: 9/1m, 200/day@" + zone + " until"},
			{"ramp end mails ip a", "no ramp to end among the limits in force: 9/1m, 200/day@" + zone},
			{"ramp hold mails global", "global: no ramp to hold"},
			{"ramp hold mails ip", "limits of all keys of ip: 9/1m, " + held},
			{"ramp hold mails", "accepts between 2 and 3 arg"},
			{"ramp", "wants a command"},
		} {
			if r := asked(t, client.Options().Addr, strings.Fields(step.line)...); !strings.Contains(r.out+r.errs, step.want) {
				t.Errorf("%s: exit status %d, %s%s\nwant %s", step.line, r.status, r.out, r.errs, step.want)
			}
		}
	})
}

// TestVersion: the program tells which it is.
func TestVersion(t *testing.T) {
	t.Parallel()
	if r := asked(t, "", "--version"); r.status != 0 || !strings.HasPrefix(r.out, "asynq-throttle version ") {
		t.Errorf("exit status %d, %q, %q", r.status, r.out, r.errs)
	}
}

// TestStatusWithoutInfo: status prints no load figures for a Redis that does not report them.
func TestStatusWithoutInfo(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	world(t, client)
	r := asked(t, client.Options().Addr, "status", "smtp")
	if !strings.Contains(r.out, "Redis       unknown: INFO does not say how busy it is") ||
		strings.Contains(r.out, "of a core") {
		t.Errorf("%s%s", r.out, r.errs)
	}
}

// TestDiffering: check finds processes with different configurations and exits with its own status;
// a verb that shows limits warns of them.
func TestDiffering(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		other := []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{throttle.PerHour(200)}},
			scopes[1], scopes[2]}
		opened(t, client, other, 2)
		r := asked(t, client.Options().Addr, "check", "smtp")
		if r.status != unwell {
			t.Errorf("exit status %d: %s", r.status, r.errs)
		}
		golden(t, "differing", masked(r.out+asked(t, client.Options().Addr, "limits", "get", "smtp").errs))
	})
}

// TestForgotten: check has a line for limits that were set a week ago without an end, and none for those that end.
func TestForgotten(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	looks := inspect.New(world(t, client))
	server.SetTime(time.Now().Add(-8 * 24 * time.Hour))
	limits := []throttle.Limit{throttle.PerHour(5)}
	if err := looks.SetLimits(t.Context(), "tenant", "acme", limits, inspect.By("ann"),
		inspect.Why("spring")); err != nil {
		t.Fatal(err)
	}
	ends := inspect.Until(time.Now().Add(30 * 24 * time.Hour))
	if err := looks.SetLimits(t.Context(), "tenant", "hooli", limits, ends); err != nil {
		t.Fatal(err)
	}
	server.SetTime(time.Now())
	r := asked(t, server.Addr(), "check", "smtp")
	want := regexp.MustCompile(`(?m)^note: set without an end a week ago or longer: ` +
		`tenant acme: 5/1h, by ann, .*: spring; take it back`)
	if !want.MatchString(r.out) || strings.Contains(r.out, "hooli") {
		t.Errorf("exit status %d, %s%s", r.status, r.out, r.errs)
	}
}

// TestConfirmed: a change asks for confirmation if a person is at the terminal.
func TestConfirmed(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := world(t, client)
		for typed, want := range map[string]bool{"n\n": false, "": false, "y\n": true} {
			r := answered(t, client.Options().Addr, typed, true, "mode", "smtp", "tenant", "shadow")
			set, err := inspect.New(th).SettingsOf(t.Context(), "tenant", "")
			if err != nil || (len(set) == 1 && set[0].Mode == "shadow") != want || (r.status == 0) != want ||
				!strings.Contains(r.errs, "make it shadow? [y/N]") {
				t.Errorf("%q: %+v, %d, %s%s", typed, set, r.status, r.errs, r.out)
			}
			if err := inspect.New(th).ResetMode(t.Context(), "tenant"); err != nil {
				t.Fatal(err)
			}
		}
		if r := answered(t, client.Options().Addr, "", true, "mode", "smtp", "tenant", "shadow", "-y"); r.status !=
			0 || r.errs != "" {
			t.Errorf("-y: %+v", r)
		}
	})
}

// TestCompletion: throttles and scopes complete.
func TestCompletion(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for line, want := range map[string]string{"status ": "smtp\n", "usage smtp ": "global\ntenant\ndomain\n"} {
			r := asked(t, client.Options().Addr, append([]string{"__complete"}, strings.Split(line, " ")...)...)
			if !strings.HasPrefix(r.out, want) {
				t.Errorf("%q completes to %q, want %q", line, r.out, want)
			}
		}
		if r := asked(t, client.Options().Addr, "completion", "bash"); r.status != 0 ||
			!strings.Contains(r.out, "bash completion") {
			t.Errorf("completion bash: %d", r.status)
		}
	})
}

// TestPauseEnds: when a change ends, by the reader's clock.
func TestPauseEnds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 17, 30, 0, 0, time.UTC)
	for _, test := range []struct{ length, until, want string }{
		{"90m", "", "2026-11-22T19:00:00Z"}, {"2d", "", "2026-11-24T17:30:00Z"},
		{"", "18:00", "2026-11-22T18:00:00Z"}, {"", "17:00", "2026-11-23T17:00:00Z"},
		{"", "2026-12-01 08:00", "2026-12-01T08:00:00Z"}, {"", "2026-12-01T08:00:00+02:00", "2026-12-01T08:00:00+02:00"},
		{"1h", "18:00", ""}, {"-1h", "", ""}, {"", "2026-01-01 08:00", ""},
	} {
		end, err := (&terms{length: test.length, until: test.until}).end(now)
		if got := end.Format(time.RFC3339); (err == nil) != (test.want != "") || err == nil && got != test.want {
			t.Errorf("%+v: %s, %v", test, got, err)
		}
	}
}

// TestTimesForPeople: spans and instants as people read them.
func TestTimesForPeople(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 17, 30, 0, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "17:30:00 (now)", 1500 * time.Millisecond: "17:30:01 (in 1.5s)", 90 * time.Second: "17:31:30 (in 1m30s)",
		10 * time.Minute:  "17:40:00 (in 10m)",
		-30 * time.Second: "17:29:30 (30s ago)", 3 * time.Hour: "20:30:00 (in 3h00m)",
		50 * time.Hour: "2026-11-24 19:30:00 (in 2d02h)",
	} {
		if got := at(now.Add(d), now); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

// TestFieldsAreDocumented: docs/command.md names each field of the JSON and each verb.
func TestFieldsAreDocumented(t *testing.T) {
	t.Parallel()
	doc, err := os.ReadFile("../../docs/command.md")
	if err != nil {
		t.Fatal(err)
	}
	fields, err := os.ReadFile("testdata/json.txt")
	if err != nil {
		t.Fatal(err)
	}
	replies := regexp.MustCompile(`(?m)^\$.*$`).ReplaceAllString(string(fields), "")
	for _, match := range regexp.MustCompile(`[.\]](\w+)`).FindAllStringSubmatch(replies, -1) {
		if !strings.Contains(string(doc), "`"+match[1]+"`") {
			t.Errorf("docs/command.md does not name the field %s", match[1])
		}
	}
	for _, cmd := range new(program).command().Commands() {
		if !strings.Contains(string(doc), "`"+cmd.Name()) && cmd.Name() != "help" {
			t.Errorf("docs/command.md does not name the verb %s", cmd.Name())
		}
	}
}

// TestGuessesThatAreFarAhead: a guess is never past, however slow a limit is, and a limit of 0 lets nothing start.
func TestGuessesThatAreFarAhead(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th, err := throttle.New("slow", client, []throttle.Scope{{Name: throttle.Global, Limits: []throttle.Limit{
			throttle.Per(1, 2*24*time.Hour)}}}, &throttle.Options{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := th.Reserve(t.Context(), throttle.Job{ID: "a", Weight: 1}); err != nil {
			t.Fatal(err)
		}
		await(t, client, "slow", 1)
		forecast := func() (f foreseen) {
			t.Helper()
			r := asked(t, client.Options().Addr, "forecast", "slow", "--json", "--jobs", "100000")
			if err := json.Unmarshal([]byte(r.out), &f); err != nil {
				t.Fatal(err, r.out, r.errs)
			}
			return f
		}
		if f := forecast(); !f.Guessed || f.Last.Before(f.Now.AddDate(100, 0, 0)) || f.Never != 0 {
			t.Errorf("%+v; want the last in hundreds of years", f)
		}
		closed := []throttle.Limit{throttle.PerMinute(0)}
		if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "", closed); err != nil {
			t.Fatal(err)
		}
		if f := forecast(); f.Never != f.Jobs || !f.Last.IsZero() || !f.First.IsZero() {
			t.Errorf("%+v; want none to start", f)
		}
		end := time.Now().Add(3 * time.Hour)
		if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "", closed, inspect.Until(end)); err != nil {
			t.Fatal(err)
		}
		if f := forecast(); f.Never != 0 || f.First.Sub(end).Abs() > time.Minute || f.Last.Before(f.First) {
			t.Errorf("%+v; want the first to start at %s", f, end)
		}
		minutely := []throttle.Limit{throttle.PerMinute(1000)}
		if err := inspect.New(th).SetLimits(t.Context(), throttle.Global, "", minutely); err != nil {
			t.Fatal(err)
		}
		if _, err := inspect.New(th).Pause(t.Context(), throttle.Global, "", end); err != nil {
			t.Fatal(err)
		}
		f := forecast()
		if f.First.Sub(end).Abs() > time.Minute || f.Last.Sub(f.First).Round(time.Minute) != 100*time.Minute {
			t.Errorf("%+v; want the last to start 100 minutes after the first", f)
		}
	})
}

// TestDryRunTriesEachKeyOnce: a whole scope is tried by its keys, each once, however many limits a key has.
func TestDryRunTriesEachKeyOnce(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		th := opened(t, client, []throttle.Scope{{Name: throttle.Global},
			{Name: "tenant", Limits: []throttle.Limit{throttle.PerMinute(10), throttle.PerHour(1000)}}}, 1)
		const keys = 60 // with two limits each
		for i := range keys {
			job := throttle.Job{ID: fmt.Sprint(i), Weight: int64(1 + i%9), Keys: map[string]string{"tenant": fmt.Sprint("t", i)}}
			if _, err := th.Reserve(t.Context(), job); err != nil {
				t.Fatal(err)
			}
		}
		r := asked(t, client.Options().Addr, "limits", "set", "smtp", "tenant", "5/1h", "--dry-run", "--json")
		var tried struct{ Rows []view.Tried }
		if err := json.Unmarshal([]byte(r.out), &tried); err != nil {
			t.Fatal(err, r.errs)
		}
		seen := make(map[string]bool)
		for _, row := range tried.Rows {
			seen[row.Key] = true
		}
		if len(tried.Rows) != keys || len(seen) != keys {
			t.Errorf("%d rows of %d keys, want %d of as many", len(tried.Rows), len(seen), keys)
		}
	})
}

// TestSettingDoesNotScan: a verb that sets limits does not go through all keys of Redis to know those in force.
func TestSettingDoesNotScan(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	world(t, client)
	if err := client.ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"limits set smtp tenant acme 2/1h,5/24h --dry-run", "limits set smtp tenant acme 5/1h",
		"limits set smtp tenant 5/1h", "ramp hold smtp domain"} {
		r := asked(t, client.Options().Addr, strings.Fields(line)...)
		if stats := client.Info(t.Context(), "commandstats").Val(); strings.Contains(stats, "cmdstat_scan:") {
			t.Fatalf("%s scanned: %+v", line, r)
		}
	}
}

// TestResetOfTheServedShare: limits reset says that it has set the served share to 1, also where no limits were set.
func TestResetOfTheServedShare(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		for _, row := range []struct{ line, want string }{
			{"limits set smtp global 90/1h", "limits of global: 90/1h; before: not set"},
			{"limits reset smtp global", "served share of global: 100 %; before: 60 %"},
			{"limits reset smtp global", "nothing has changed"},
		} {
			if r := asked(t, client.Options().Addr, strings.Fields(row.line)...); !strings.Contains(r.out, row.want) {
				t.Errorf("%s: %s%s, want %q", row.line, r.out, r.errs, row.want)
			}
		}
	})
	onServers(t, func(t *testing.T, client *redis.Client) {
		world(t, client)
		r := asked(t, client.Options().Addr, "limits", "reset", "smtp", "global")
		if r.out != "served share of global: 100 %; before: 60 %\n" {
			t.Errorf("without limits: %s%s", r.out, r.errs)
		}
	})
}

// TestGuessOfAServedShare: where the upstream serves half of a limit, the last of many jobs starts twice as late.
func TestGuessOfAServedShare(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, client *redis.Client) {
		all := throttle.Scope{Name: throttle.Global, Floor: 0.1, Limits: []throttle.Limit{throttle.PerMinute(1000)}}
		th := opened(t, client, []throttle.Scope{all}, 1)
		said := throttle.Report{Limits: []throttle.ReportedLimit{{Units: 500, Remaining: -1}}}
		if _, err := th.Report(t.Context(), throttle.Global, "", said); err != nil {
			t.Fatal(err)
		}
		r := asked(t, client.Options().Addr, "forecast", "smtp", "--json", "--jobs", "100000")
		var f foreseen
		if err := json.Unmarshal([]byte(r.out), &f); err != nil {
			t.Fatal(err, r.out, r.errs)
		}
		if took := f.Last.Sub(f.First).Round(time.Minute); !f.Guessed || took != 200*time.Minute {
			t.Errorf("%+v: the last starts %s after the first, want 200 minutes", f, took)
		}
	})
}

// TestPatienceEnds: a verb that takes too long says what may be the cause, and what to do.
func TestPatienceEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		err := limited(func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return fmt.Errorf("throttle: the lanes cannot be read: %w", cmd.Context().Err())
		})(cmd, nil)
		want := "this takes longer than 30s: Redis is slow, or has very many keys or waiting jobs; name a scope " +
			"and a key if the verb takes them, or try again when Redis is less busy"
		if text := new(program).explain(err); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
}

// TestAnswerThatComesLate: an answer that comes when the time of the verb is over changes nothing. The error says so,
// and does not blame Redis.
func TestAnswerThatComesLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		p := &program{errs: io.Discard, in: strings.NewReader("y\n"), asks: true}
		err := limited(func(cmd *cobra.Command, _ []string) error {
			<-cmd.Context().Done()
			return p.confirmed(cmd.Context(), "sure?")
		})(cmd, nil)
		want := "nothing was changed: the answer came more than 30s after the start; give the command again"
		if text := p.explain(err); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	})
}
