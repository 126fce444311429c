package main

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	netmail "net/mail"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

//go:generate go run gen.go

//go:embed campaign.csv
var bundled []byte

// Bounds of one mail. maxRecipients is the number that every SMTP server must
// take (RFC 5321, 4.5.3.1.8).
const (
	maxRecipients = 100
	maxID         = 64
	maxArrival    = 24 * time.Hour
)

// mail is one message of a campaign. It is not changed once loaded.
type mail struct {
	id      string        // unique in the campaign: letters, digits, _ . -
	at      time.Duration // when it arrives, after the start of the campaign
	tenant  string
	from    string   // an address, perhaps with a name
	to      []string // bare addresses, all of one domain
	domain  string   // the recipients' domain, in lower case
	subject string
	body    string
}

// units is what the mail weighs: one unit for each recipient.
func (m *mail) units() int64 { return int64(len(m.to)) }

// key is the mail's key in a scope; empty for the scope without keys.
func (m *mail) key(scope string) string {
	switch scope {
	case scopeTenant:
		return m.tenant
	case scopeDomain:
		return m.domain
	}
	return ""
}

// campaign is the mails of one CSV file, in the order of their arrival.
type campaign struct {
	name  string // where it came from
	id    string // 12 hex digits of the content's hash
	mails []*mail
	byID  map[string]*mail
}

// units is what all mails weigh together.
func (c *campaign) units() int64 {
	var units int64
	for _, m := range c.mails {
		units += m.units()
	}
	return units
}

// openCampaign loads the CSV file at path, or the bundled campaign when path is
// empty.
func openCampaign(path string) (*campaign, error) {
	if path == "" {
		return loadCampaign("bundled", bytes.NewReader(bundled))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	return loadCampaign(path, file)
}

// loadCampaign reads a campaign from CSV. The first line names the columns:
// id, tenant, from, to, subject, and perhaps at and body, in any order. An
// error says the line it found.
func loadCampaign(name string, r io.Reader) (*campaign, error) {
	hash := sha256.New()
	rows := csv.NewReader(io.TeeReader(r, hash))
	header, err := rows.Read()
	if errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("campaign %s: the file is empty", name)
	}
	if err != nil {
		return nil, fmt.Errorf("campaign %s: %w", name, err)
	}
	columns, err := readHeader(header)
	if err != nil {
		return nil, fmt.Errorf("campaign %s, line 1: %w", name, err)
	}
	c := &campaign{name: name, byID: make(map[string]*mail)}
	for {
		row, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("campaign %s: %w", name, err) // the csv package names the line
		}
		line, _ := rows.FieldPos(0)
		if err := c.add(columns, row); err != nil {
			return nil, fmt.Errorf("campaign %s, line %d: %w", name, line, err)
		}
	}
	if len(c.mails) == 0 {
		return nil, fmt.Errorf("campaign %s: no mails after the line of column names", name)
	}
	slices.SortStableFunc(c.mails, func(a, b *mail) int { return cmp.Compare(a.at, b.at) })
	c.id = hex.EncodeToString(hash.Sum(nil)[:6])
	return c, nil
}

// readHeader maps each column's name to its place.
func readHeader(header []string) (map[string]int, error) {
	columns := make(map[string]int)
	for i, name := range header {
		name = strings.ToLower(strings.TrimSpace(strings.TrimPrefix(name, "\ufeff")))
		if !slices.Contains([]string{"id", "at", "tenant", "from", "to", "subject", "body"}, name) {
			return nil, fmt.Errorf("unknown column %q; want id, tenant, from, to, subject, and perhaps at and body", name)
		}
		if _, twice := columns[name]; twice {
			return nil, fmt.Errorf("column %q is there twice", name)
		}
		columns[name] = i
	}
	for _, name := range []string{"id", "tenant", "from", "to", "subject"} {
		if _, there := columns[name]; !there {
			return nil, fmt.Errorf("column %q is missing", name)
		}
	}
	return columns, nil
}

func (c *campaign) add(columns map[string]int, row []string) error {
	field := func(name string) string {
		i, there := columns[name]
		if !there {
			return ""
		}
		return row[i]
	}
	m := &mail{
		id:      strings.TrimSpace(field("id")),
		tenant:  strings.TrimSpace(field("tenant")),
		from:    strings.TrimSpace(field("from")),
		subject: field("subject"),
		body:    field("body"),
	}
	if err := m.read(field("at"), field("to")); err != nil {
		return err
	}
	if c.byID[m.id] != nil {
		return fmt.Errorf("id %q is there twice", m.id)
	}
	c.byID[m.id] = m
	c.mails = append(c.mails, m)
	return nil
}

// read checks the mail's fields and reads the two that are not plain text.
func (m *mail) read(at, to string) error {
	if !validID(m.id) {
		return fmt.Errorf("id %q is not 1 to %d letters, digits, _ . or -", m.id, maxID)
	}
	if m.tenant == "" {
		return errors.New("tenant is empty")
	}
	if _, err := netmail.ParseAddress(m.from); err != nil {
		return fmt.Errorf("from %q is not an address", m.from)
	}
	if strings.ContainsAny(m.subject, "\r\n") {
		return errors.New("subject has more than one line")
	}
	for _, text := range []string{m.tenant, m.from, to, m.subject, m.body} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q is not UTF-8", text)
		}
	}
	if err := m.readArrival(strings.TrimSpace(at)); err != nil {
		return err
	}
	return m.readRecipients(to)
}

func (m *mail) readArrival(text string) error {
	if text == "" {
		return nil
	}
	at, err := time.ParseDuration(text)
	if err != nil || at < 0 || at > maxArrival {
		return fmt.Errorf("at %q is not a duration from 0s to %s, such as 1.5s", text, maxArrival)
	}
	m.at = at
	return nil
}

// readRecipients takes addresses separated by spaces or semicolons. They must
// share a domain, since a mail is counted under one key of each scope.
func (m *mail) readRecipients(text string) error {
	for _, recipient := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ' ' }) {
		address, err := netmail.ParseAddress(recipient)
		if err != nil || address.Name != "" || address.Address != recipient {
			return fmt.Errorf("recipient %q is not a bare address", recipient)
		}
		domain := strings.ToLower(recipient[strings.LastIndexByte(recipient, '@')+1:])
		if m.domain == "" {
			m.domain = domain
		}
		if domain != m.domain {
			return fmt.Errorf("recipients of two domains, %s and %s; write one mail for each domain", m.domain, domain)
		}
		if slices.Contains(m.to, recipient) {
			return fmt.Errorf("recipient %s is there twice", recipient)
		}
		m.to = append(m.to, recipient)
	}
	switch {
	case len(m.to) == 0:
		return errors.New("no recipients")
	case len(m.to) > maxRecipients:
		return fmt.Errorf("%d recipients are more than %d", len(m.to), maxRecipients)
	}
	return nil
}

func validID(id string) bool {
	if id == "" || len(id) > maxID {
		return false
	}
	for _, r := range id {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		if !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("_.-", r) {
			return false
		}
	}
	return true
}
