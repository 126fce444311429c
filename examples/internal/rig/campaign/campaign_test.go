package campaign

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
)

const header = "id,at,tenant,from,to,subject,body\n"

func TestLoadCampaignReadsMails(t *testing.T) {
	t.Parallel()
	c, err := Load("test", strings.NewReader(header+
		"b,2s,acme,Acme <news@acme.example>,ada@Hill.example;ben@hill.example  cleo@hill.example,Hello,\"Two\nlines\"\n"+
		"a,,globex,info@globex.example,dan@lake.example,Hi,\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Mails) != 2 || c.Mails[0].ID != "a" || c.Mails[1].ID != "b" {
		t.Fatalf("mails are not a, b in the order of arrival: %v", c.Mails)
	}
	b := c.ByID["b"]
	if b.Units() != 3 || b.Domain != "hill.example" || b.At != 2*time.Second || b.Body != "Two\nlines" {
		t.Errorf("got %+v", *b)
	}
	if b.Key(ScopeTenant) != "acme" || b.Key(ScopeDomain) != "hill.example" || b.Key("global") != "" {
		t.Errorf("keys are %q, %q, %q", b.Key(ScopeTenant), b.Key(ScopeDomain), b.Key("global"))
	}
}

func TestLoadCampaignTakesColumnsInAnyOrder(t *testing.T) {
	t.Parallel()
	c, err := Load("test", strings.NewReader("\ufeffSubject,to,from,tenant,id\n"+
		"Hi,ada@hill.example,me@acme.example,acme,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m := c.ByID["1"]; m == nil || m.Subject != "Hi" || m.Tenant != "acme" {
		t.Errorf("got %+v", m)
	}
}

func TestLoadCampaignSaysWhatIsWrong(t *testing.T) {
	t.Parallel()
	const good = "m1,0s,acme,me@acme.example,ada@hill.example,Hi,Text\n"
	for _, row := range []struct{ name, text, want string }{
		{"empty file", "", "the file is empty"},
		{"no mails", header, "no mails"},
		{"unknown column", "id,colour\n", `line 1: unknown column "colour"`},
		{"column twice", "id,tenant,id\n", `line 1: column "id" is there twice`},
		{"column missing", "id,tenant,from,subject\n", `line 1: column "to" is missing`},
		{"too few fields", header + good + "m2,0s\n", "line 3"},
		{"broken quotes", header + "m1,0s,\"acme\n", "line 2"},
		{"id empty", header + ",0s,acme,me@acme.example,ada@hill.example,Hi,\n", `line 2: id "" is not`},
		{"id with a space", header + "m 1,0s,acme,me@acme.example,ada@hill.example,Hi,\n", `line 2: id "m 1" is not`},
		{"id twice", header + good + good, `line 3: id "m1" is there twice`},
		{"tenant empty", header + "m1,0s,,me@acme.example,ada@hill.example,Hi,\n", "line 2: tenant is empty"},
		{"bad sender", header + "m1,0s,acme,me,ada@hill.example,Hi,\n", `line 2: from "me" is not an address`},
		{"arrival", header + "m1,soon,acme,me@acme.example,ada@hill.example,Hi,\n", `line 2: at "soon" is not a duration`},
		{"arrival before the start", header + "m1,-1s,acme,me@acme.example,ada@hill.example,Hi,\n",
			`line 2: at "-1s" is not`},
		{"subject of two lines", header + "m1,0s,acme,me@acme.example,ada@hill.example,\"a\nb\",\n",
			"line 2: subject has more than one line"},
		{"no recipients", header + "m1,0s,acme,me@acme.example, ; ,Hi,\n", "line 2: no recipients"},
		{"bad recipient", header + "m1,0s,acme,me@acme.example,ada,Hi,\n", `line 2: recipient "ada" is not`},
		{"recipient twice", header + "m1,0s,acme,me@acme.example,a@b.example a@b.example,Hi,\n",
			"line 2: recipient a@b.example is there twice"},
		{"after a body of three lines", header + "m1,0s,acme,me@acme.example,ada@hill.example,Hi,\"1\n2\n3\"\n" +
			"m2,0s,,,,,\n", "line 5: tenant is empty"},
		{"two domains", header + "m1,0s,acme,me@acme.example,ada@hill.example ben@lake.example,Hi,\n",
			"line 2: recipients of two domains, hill.example and lake.example"},
		{"not UTF-8", header + "m1,0s,acme,me@acme.example,ada@hill.example,\"a\xff\",\n", "line 2: \"a\\xff\" is not UTF-8"},
		{"too many recipients", header + "m1,0s,acme,me@acme.example," + manyRecipients(MaxRecipients+1) + ",Hi,\n",
			"line 2: 101 recipients are more than 100"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load("list.csv", strings.NewReader(row.text))
			if err == nil || !strings.Contains(err.Error(), row.want) || !strings.Contains(err.Error(), "list.csv") {
				t.Errorf("got %v, want an error with list.csv and %q", err, row.want)
			}
		})
	}
}

func manyRecipients(n int) string {
	var to []string
	for i := range n {
		to = append(to, strings.Repeat("a", i+1)+"@hill.example")
	}
	return strings.Join(to, " ")
}

func TestLoadCampaignPassesReadErrorsOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk is gone")
	if _, err := Load("test", failingReader{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// The bundled campaign is as the README describes it.
func TestBundledCampaign(t *testing.T) {
	t.Parallel()
	c, err := Open("")
	if err != nil {
		t.Fatal(err)
	}
	tenants, domains := make(map[string]int), make(map[string]int)
	single, many := 0, 0
	for _, m := range c.Mails {
		tenants[m.Tenant]++
		domains[m.Domain]++
		if m.Units() == 1 {
			single++
		}
		if m.Units() >= 10 {
			many++
		}
		if !strings.HasSuffix(m.Domain, ".example") {
			t.Errorf("mail %s goes to %s, which may exist", m.ID, m.Domain)
		}
	}
	if len(c.Mails) < 300 || len(tenants) < 3 || len(domains) < 5 || single < 50 || many < 3 {
		t.Errorf("%d mails, %d tenants, %d domains, %d with one recipient, %d with ten or more", len(c.Mails),
			len(tenants), len(domains), single, many)
	}
}

func FuzzLoadCampaign(f *testing.F) {
	f.Add(header + "m1,0s,acme,me@acme.example,ada@hill.example,Hi,Text\n")
	f.Add("id,tenant,from,to,subject\n1,a,b@c,d@e f@e,g\n")
	f.Add("\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Load("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, m := range c.Mails {
			if m.Units() < 1 || m.Units() > MaxRecipients || m.Domain == "" || m.Tenant == "" ||
				!rig.ValidName(m.ID) || m.At < 0 {
				t.Errorf("accepted %+v", *m)
			}
		}
	})
}
