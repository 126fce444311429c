package crawl

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/csv"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/asynq-throttle/asynq-throttle/examples/internal/rig/link"
)

//go:embed seeds.csv
var bundledSeeds []byte

// maxCustomer bounds the name of a customer, in bytes.
const maxCustomer = 64

// Seed is a page that a crawl starts from, and the customer for whom it is fetched.
type Seed struct {
	Customer string
	URL      *url.URL
}

// SeedList is the content of one file of seeds.
type SeedList struct {
	Name  string // the file's path, or that the seeds are the bundled ones
	ID    string // 12 hex digits of the content's hash
	Seeds []Seed
}

// OpenSeeds loads the CSV file at path, or the bundled seeds when path is empty.
func OpenSeeds(path string) (*SeedList, error) {
	name, content := "bundled", bundledSeeds
	if path != "" {
		var err error
		if content, err = os.ReadFile(path); err != nil {
			return nil, fmt.Errorf("seeds: %w", err)
		}
		name = path
	}
	seeds, err := parseSeeds(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("seeds %s: %w", name, err)
	}
	hash := sha256.Sum256(content)
	return &SeedList{Name: name, ID: hex.EncodeToString(hash[:6]), Seeds: seeds}, nil
}

// parseSeeds reads a customer and a URL from each line, after a first line with the
// names of these columns.
func parseSeeds(r io.Reader) ([]Seed, error) {
	rows := csv.NewReader(r)
	rows.FieldsPerRecord = 2
	rows.TrimLeadingSpace = true
	header, err := rows.Read()
	if err != nil || strings.TrimSpace(strings.TrimPrefix(header[0], "\uFEFF")) != "customer" ||
		strings.TrimSpace(header[1]) != "url" {
		return nil, errors.New("the first line is not customer,url")
	}
	var seeds []Seed
	for {
		record, err := rows.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		line, _ := rows.FieldPos(0)
		one := Seed{Customer: strings.TrimSpace(record[0])}
		if one.Customer == "" || len(one.Customer) > maxCustomer {
			return nil, fmt.Errorf("line %d: customer is not 1 to %d bytes long", line, maxCustomer)
		}
		if one.URL, err = link.Resolve(nil, record[1]); err != nil {
			return nil, fmt.Errorf("line %d: url %q %w", line, record[1], err)
		}
		seeds = append(seeds, one)
	}
	if len(seeds) == 0 {
		return nil, errors.New("there are none")
	}
	return seeds, nil
}
