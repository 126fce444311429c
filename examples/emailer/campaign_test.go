package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const header = "id,at,tenant,from,to,subject,body\n"

func TestLoadCampaignReadsMails(t *testing.T) {
	t.Parallel()
	c, err := loadCampaign("test", strings.NewReader(header+
		"b,2s,acme,Acme <news@acme.example>,ada@Hill.example;ben@hill.example  cleo@hill.example,Hello,\"Two\nlines\"\n"+
		"a,,globex,info@globex.example,dan@lake.example,Hi,\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.mails) != 2 || c.mails[0].id != "a" || c.mails[1].id != "b" {
		t.Fatalf("mails are not a, b in the order of arrival: %v", c.mails)
	}
	b := c.byID["b"]
	if b.units() != 3 || b.domain != "hill.example" || b.at != 2*time.Second || b.body != "Two\nlines" {
		t.Errorf("got %+v", *b)
	}
	if b.key(scopeTenant) != "acme" || b.key(scopeDomain) != "hill.example" || b.key("global") != "" {
		t.Errorf("keys are %q, %q, %q", b.key(scopeTenant), b.key(scopeDomain), b.key("global"))
	}
}

func TestLoadCampaignTakesColumnsInAnyOrder(t *testing.T) {
	t.Parallel()
	c, err := loadCampaign("test", strings.NewReader("\ufeffSubject,to,from,tenant,id\nHi,ada@hill.example,me@acme.example,acme,1\n"))
	if err != nil {
		t.Fatal(err)
	}
	if m := c.byID["1"]; m == nil || m.subject != "Hi" || m.tenant != "acme" {
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
		{"from is none", header + "m1,0s,acme,me,ada@hill.example,Hi,\n", `line 2: from "me" is not an address`},
		{"arrival", header + "m1,soon,acme,me@acme.example,ada@hill.example,Hi,\n", `line 2: at "soon" is not a duration`},
		{"arrival before the start", header + "m1,-1s,acme,me@acme.example,ada@hill.example,Hi,\n", `line 2: at "-1s" is not`},
		{"subject of two lines", header + "m1,0s,acme,me@acme.example,ada@hill.example,\"a\nb\",\n", "line 2: subject has more than one line"},
		{"no recipients", header + "m1,0s,acme,me@acme.example, ; ,Hi,\n", "line 2: no recipients"},
		{"recipient is none", header + "m1,0s,acme,me@acme.example,ada,Hi,\n", `line 2: recipient "ada" is not`},
		{"recipient twice", header + "m1,0s,acme,me@acme.example,a@b.example a@b.example,Hi,\n", "line 2: recipient a@b.example is there twice"},
		{"after a body of three lines", header + "m1,0s,acme,me@acme.example,ada@hill.example,Hi,\"1\n2\n3\"\n" + "m2,0s,,,,,\n", "line 5: tenant is empty"},
		{"two domains", header + "m1,0s,acme,me@acme.example,ada@hill.example ben@lake.example,Hi,\n",
			"line 2: recipients of two domains, hill.example and lake.example"},
		{"not UTF-8", header + "m1,0s,acme,me@acme.example,ada@hill.example,\"a\xff\",\n", "line 2: \"a\\xff\" is not UTF-8"},
		{"too many recipients", header + "m1,0s,acme,me@acme.example," + manyRecipients(maxRecipients+1) + ",Hi,\n", "line 2: 101 recipients are more than 100"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			_, err := loadCampaign("list.csv", strings.NewReader(row.text))
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
	if _, err := loadCampaign("test", failingReader{broken}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
}

type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// What the README promises of the bundled campaign.
func TestBundledCampaign(t *testing.T) {
	t.Parallel()
	c, err := openCampaign("")
	if err != nil {
		t.Fatal(err)
	}
	tenants, domains, locals := make(map[string]int), make(map[string]int), make(map[string]int)
	single, many := 0, 0
	for _, m := range c.mails {
		tenants[m.tenant]++
		domains[m.domain]++
		if m.units() == 1 {
			single++
			local, _, _ := strings.Cut(m.to[0], "@")
			locals[local]++
		}
		if m.units() >= 10 {
			many++
		}
		if !strings.HasSuffix(m.domain, ".example") {
			t.Errorf("mail %s goes to %s, which may exist", m.id, m.domain)
		}
	}
	if len(c.mails) < 300 || len(tenants) < 3 || len(domains) < 5 || single < 50 || many < 3 {
		t.Errorf("%d mails, %d tenants, %d domains, %d with one recipient, %d with ten or more", len(c.mails), len(tenants), len(domains), single, many)
	}
	if locals[localNobody] != 1 || locals[localFull] < 1 || locals[localBusy] != 2 {
		t.Errorf("%d mails to nobody, %d to full, %d to busy", locals[localNobody], locals[localFull], locals[localBusy])
	}
}

// A small tenant comes when the others have much more in line than goes out.
func TestBundledCampaignHasALateTenant(t *testing.T) {
	t.Parallel()
	c, err := openCampaign("")
	if err != nil {
		t.Fatal(err)
	}
	late := c.latecomer()
	if len(late) < 5 || len(late) > 20 || late[0].at != 5*time.Second {
		t.Fatalf("%d mails of a late tenant, want about ten after 5 s", len(late))
	}
	const perSecond = 40 // of all, by defaultLimits
	var before int64
	for _, m := range c.mails {
		if m.at < late[0].at {
			before += m.units()
		}
	}
	if inLine := before - 6*perSecond; inLine < 5*perSecond {
		t.Errorf("%d units in line are less than five seconds' worth", inLine)
	}
}

func FuzzLoadCampaign(f *testing.F) {
	f.Add(header + "m1,0s,acme,me@acme.example,ada@hill.example,Hi,Text\n")
	f.Add("id,tenant,from,to,subject\n1,a,b@c,d@e f@e,g\n")
	f.Add("\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := loadCampaign("fuzz", strings.NewReader(text))
		if err != nil {
			return
		}
		for _, m := range c.mails {
			if m.units() < 1 || m.units() > maxRecipients || m.domain == "" || m.tenant == "" || !validID(m.id) || m.at < 0 {
				t.Errorf("accepted %+v", *m)
			}
			if _, err := compose(m); err != nil {
				t.Errorf("accepted what cannot be composed: %v", err)
			}
		}
	})
}
