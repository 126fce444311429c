//go:build ignore

// gen writes campaign.csv, the bundled campaign: the same bytes each time.
//
//	go run gen.go
//
// Acme's newsletter and initech's invoices begin with more than their quotas let
// out soon; then all tenants' mails come one by one, those of globex now and then
// to a whole team. Together they wait for the global limit from the first second
// to the last. Hooli sends a few mails after five seconds, when all the others'
// stand in line.
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
		mails = append(mails, mail{at: at, tenant: tenant, from: from, domain: domain, to: people(random, domain, recipients), subject: subject, body: body})
	}
	for i := range 170 {
		add(batch(i, 100, 4*time.Second), "acme", "Acme News <news@acme.example>", 1+random.IntN(4), fmt.Sprintf("What is new in week %d", 1+i%52),
			"Anvils are lighter this week.\nWrite to us if you would rather not hear of it.")
	}
	for i := range 106 {
		add(batch(i, 1, 0), "globex", "Globex Projects <projects@globex.example>", team(random), fmt.Sprintf("Minutes of meeting %d", 1+i),
			"Please find the decisions of today below.\nThe next meeting is on Tuesday.")
	}
	for i := range 138 {
		add(batch(i, 50, 2*time.Second), "initech", "Initech Billing <billing@initech.example>", 1+random.IntN(4), fmt.Sprintf("Invoice %05d", 4100+i),
			"Your invoice is ready.\nNo cover sheet is needed.")
	}
	for i := range 10 {
		add(5*time.Second, "hooli", "Hooli Accounts <accounts@hooli.example>", 1+random.IntN(3), fmt.Sprintf("Confirm your account %d", 1+i),
			"Please confirm your address.\nThe link is good for ten minutes.")
	}
	slices.SortStableFunc(mails, func(a, b mail) int { return int(a.at - b.at) })
	scripted(mails)
	if err := write(mails); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// batch is when mail i of a tenant comes: the first ones all at once, the rest
// ten in a second from a time on.
func batch(i, first int, from time.Duration) time.Duration {
	if i < first {
		return 0
	}
	return from + time.Duration(i-first)*100*time.Millisecond
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

// scripted gives some mails the recipients that the bundled SMTP server
// refuses: nobody for good, greylist the first time.
func scripted(mails []mail) {
	single := 0
	for i := range mails {
		if len(mails[i].to) != 1 {
			continue
		}
		switch single++; single {
		case 5:
			mails[i].to[0] = "nobody@" + mails[i].domain
		case 8, 11:
			mails[i].to[0] = "greylist@" + mails[i].domain
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
