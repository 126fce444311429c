//go:build ignore

// gen writes campaign.csv, the bundled campaign: the same bytes each time.
//
//	go run gen.go
//
// Acme's newsletter, initech's invoices and globex' minutes of meetings, now and then
// to a whole team, are all there at the beginning: more than may go out soon. Vandelay,
// a new sender, has a few mails a second from the fourth second on, and hooli sends
// some after five seconds, when all the others' stand in line.
package main

import (
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

var domains = []string{"coast.example", "field.example", "hill.example", "lake.example", "river.example"}

var names = []string{
	"ada", "ben", "cleo", "dan", "eva", "finn", "gina", "hugo", "ida", "jon", "kim", "lea", "max",
	"nina", "otto", "pia", "quinn", "rosa", "sam", "tess", "udo", "vera", "will", "xenia", "yara", "zoe",
}

type mail struct {
	at            time.Duration
	tenant, from  string
	domain        string
	to            []string
	subject, body string
}

func main() {
	random := rand.New(rand.NewPCG(2026, 5))
	var mails []mail
	add := func(at time.Duration, tenant, from string, recipients int, subject, body string) {
		domain := domains[random.IntN(len(domains))]
		mails = append(mails, mail{at: at, tenant: tenant, from: from, domain: domain,
			to: people(random, domain, recipients), subject: subject, body: body})
	}
	for i := range 150 {
		add(0, "acme", "Acme News <news@acme.example>", 1+random.IntN(4), fmt.Sprintf("What is new in week %d", 1+i%52),
			"Anvils are lighter this week.\nWrite to us if you would rather not hear of it.")
	}
	for i := range 100 {
		add(0, "globex", "Globex Projects <projects@globex.example>", team(random), fmt.Sprintf("Minutes of meeting %d", 1+i),
			"Please find the decisions of today below.\nThe next meeting is on Tuesday.")
	}
	for i := range 124 {
		add(0, "initech", "Initech Billing <billing@initech.example>", 1+random.IntN(4), fmt.Sprintf("Invoice %05d", 4100+i),
			"Your invoice is ready.\nNo cover sheet is needed.")
	}
	for i := range 10 {
		add(5*time.Second, "hooli", "Hooli Accounts <accounts@hooli.example>", 1+random.IntN(3),
			fmt.Sprintf("Confirm your account %d", 1+i),
			"Please confirm your address.\nThe link is good for ten minutes.")
	}
	for i := range 40 {
		add(4*time.Second+time.Duration(i)*250*time.Millisecond, "vandelay",
			"Vandelay Imports <sales@vandelay.example>", 1+random.IntN(2),
			fmt.Sprintf("Latex, offer %d", 1+i), "We import and export.\nThis is our first letter to you.")
	}
	random.Shuffle(len(mails), func(i, j int) { mails[i], mails[j] = mails[j], mails[i] })
	slices.SortStableFunc(mails, func(a, b mail) int { return int(a.at - b.at) })
	scripted(mails)
	if err := write(mails); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// team draws how many get a project mail: mostly a few, now and then all.
func team(random *rand.Rand) int {
	if random.IntN(16) == 0 {
		return 10 + random.IntN(3)
	}
	return 1 + random.IntN(5)
}

func people(random *rand.Rand, domain string, n int) []string {
	to := make([]string, 0, n)
	for _, i := range random.Perm(len(names))[:n] {
		to = append(to, names[i]+"@"+domain)
	}
	return to
}

// scripted gives some mails the recipients that the bundled SMTP server has a script
// for (see internal/rig/smtp/script.go): mails to one recipient, of the tenants' lines about where
// they are after a quarter and a half of the run.
func scripted(mails []mail) {
	single := make(map[string]int)
	for i := range mails {
		m := &mails[i]
		if len(m.to) != 1 {
			continue
		}
		single[m.tenant]++
		switch {
		case m.tenant == "acme" && single["acme"] == 5:
			m.to[0] = "nobody@" + m.domain
		case m.tenant == "initech" && (single["initech"] == 14 || single["initech"] == 20):
			m.to[0] = "full@" + m.domain
		case m.tenant == "globex" && single["globex"] == 4, m.tenant == "acme" && single["acme"] == 15:
			m.to[0] = "busy@" + m.domain
		}
	}
}

func write(mails []mail) error {
	file, err := os.Create("campaign.csv")
	if err != nil {
		return err
	}
	w := csv.NewWriter(file)
	w.Write([]string{"id", "at", "tenant", "from", "to", "subject", "body"})
	for i, m := range mails {
		at := strconv.FormatFloat(m.at.Seconds(), 'f', -1, 64) + "s"
		w.Write([]string{fmt.Sprintf("m%04d", i+1), at, m.tenant, m.from, strings.Join(m.to, " "), m.subject, m.body})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return file.Close()
}
