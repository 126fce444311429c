// Package campaign reads the mails that the emailer sends, from CSV: a campaign of its own
// where none is given.
package campaign

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

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig"
)

//go:generate go run gen.go

//go:embed campaign.csv
var bundled []byte

// The scopes that mails are counted over, besides throttle.Global.
const (
	ScopeTenant = "tenant"
	ScopeDomain = "domain"
	// ScopeConnections counts the mails on their way to a domain.
	ScopeConnections = "connections"
)

// Bounds of one mail. maxRecipients is the number that every SMTP server must
// take (RFC 5321, 4.5.3.1.8).
const (
	MaxRecipients = 100
	maxArrival    = 24 * time.Hour
)

// Mail is one message of a campaign. It is not changed once loaded.
type Mail struct {
	ID      string        // unique in the campaign: letters, digits, _ . -
	At      time.Duration // when it arrives, after the start of the campaign
	Tenant  string
	From    string   // an address, perhaps with a name
	To      []string // bare addresses, all of one domain
	Domain  string   // the recipients' domain, in lower case
	Subject string
	Body    string
}

// Units returns the weight of the mail: one unit for each recipient.
func (m *Mail) Units() int64 { return int64(len(m.To)) }

// Key returns the mail's key in a scope; empty for the scope without keys.
func (m *Mail) Key(scope string) string {
	switch scope {
	case ScopeTenant:
		return m.Tenant
	case ScopeDomain:
		return m.Domain
	}
	return ""
}

// Campaign is the mails of one CSV file, in the order of their arrival.
type Campaign struct {
	Name  string // the file's path, or a name for the bundled campaign
	ID    string // 12 hex digits of the content's hash
	Mails []*Mail
	ByID  map[string]*Mail
}

// Units returns the weight of all mails together.
func (c *Campaign) Units() int64 {
	var units int64
	for _, m := range c.Mails {
		units += m.Units()
	}
	return units
}

// TaskID returns the ID of a mail's task in asynq. It is the same in each run.
func (c *Campaign) TaskID(m *Mail) string { return c.ID + "-" + m.ID }

// Open loads the CSV file at path, or the bundled campaign when path is
// empty.
func Open(path string) (*Campaign, error) {
	if path == "" {
		return Load("bundled", bytes.NewReader(bundled))
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("campaign: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	return Load(path, file)
}

// Load reads a campaign from CSV. The first line names the columns:
// id, tenant, from, to, subject, and perhaps at and body, in any order. An
// error says the line it found.
func Load(name string, r io.Reader) (*Campaign, error) {
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
	c := &Campaign{Name: name, ByID: make(map[string]*Mail)}
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
	if len(c.Mails) == 0 {
		return nil, fmt.Errorf("campaign %s: no mails after the line of column names", name)
	}
	slices.SortStableFunc(c.Mails, func(a, b *Mail) int { return cmp.Compare(a.At, b.At) })
	c.ID = hex.EncodeToString(hash.Sum(nil)[:6])
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

func (c *Campaign) add(columns map[string]int, row []string) error {
	field := func(name string) string {
		i, there := columns[name]
		if !there {
			return ""
		}
		return row[i]
	}
	m := &Mail{
		ID:      strings.TrimSpace(field("id")),
		Tenant:  strings.TrimSpace(field("tenant")),
		From:    strings.TrimSpace(field("from")),
		Subject: field("subject"),
		Body:    field("body"),
	}
	if err := m.read(field("at"), field("to")); err != nil {
		return err
	}
	if c.ByID[m.ID] != nil {
		return fmt.Errorf("id %q is there twice", m.ID)
	}
	c.ByID[m.ID] = m
	c.Mails = append(c.Mails, m)
	return nil
}

// read checks the mail's fields and reads the two that are not plain text.
func (m *Mail) read(at, to string) error {
	if !rig.ValidName(m.ID) {
		return fmt.Errorf("id %q is not 1 to 64 letters, digits, _ . or -", m.ID)
	}
	if m.Tenant == "" {
		return errors.New("tenant is empty")
	}
	if _, err := netmail.ParseAddress(m.From); err != nil {
		return fmt.Errorf("from %q is not an address", m.From)
	}
	if strings.ContainsAny(m.Subject, "\r\n") {
		return errors.New("subject has more than one line")
	}
	for _, text := range []string{m.Tenant, m.From, to, m.Subject, m.Body} {
		if !utf8.ValidString(text) {
			return fmt.Errorf("%q is not UTF-8", text)
		}
	}
	if err := m.readArrival(strings.TrimSpace(at)); err != nil {
		return err
	}
	return m.readRecipients(to)
}

func (m *Mail) readArrival(text string) error {
	if text == "" {
		return nil
	}
	at, err := time.ParseDuration(text)
	if err != nil || at < 0 || at > maxArrival {
		return fmt.Errorf("at %q is not a duration from 0s to %s, such as 1.5s", text, maxArrival)
	}
	m.At = at
	return nil
}

// readRecipients takes addresses separated by spaces or semicolons. They must
// share a domain, since a mail is counted under one key of each scope.
func (m *Mail) readRecipients(text string) error {
	for _, recipient := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ' ' }) {
		address, err := netmail.ParseAddress(recipient)
		if err != nil || address.Name != "" || address.Address != recipient {
			return fmt.Errorf("recipient %q is not a bare address", recipient)
		}
		domain := strings.ToLower(recipient[strings.LastIndexByte(recipient, '@')+1:])
		if m.Domain == "" {
			m.Domain = domain
		}
		if domain != m.Domain {
			return fmt.Errorf("recipients of two domains, %s and %s; write one mail for each domain", m.Domain, domain)
		}
		if slices.Contains(m.To, recipient) {
			return fmt.Errorf("recipient %s is there twice", recipient)
		}
		m.To = append(m.To, recipient)
	}
	switch {
	case len(m.To) == 0:
		return errors.New("no recipients")
	case len(m.To) > MaxRecipients:
		return fmt.Errorf("%d recipients are more than %d", len(m.To), MaxRecipients)
	}
	return nil
}
