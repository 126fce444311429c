package reliability

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The markers before and after the table in a document.
const (
	tableBegins = "<!-- make reliability writes from here -->\n"
	soakBegins  = "<!-- make soak writes from here -->\n"
	tableEnds   = "<!-- to here -->\n"
)

// Replace puts the table of rows between the markers of a document.
func Replace(document string, rows []Row) (string, error) {
	return replace(document, tableBegins, Table(rows))
}

// replace puts a table between a marker and the end.
func replace(document, begins, table string) (string, error) {
	before, rest, found := strings.Cut(document, begins)
	_, after, ends := strings.Cut(rest, tableEnds)
	if !found || !ends {
		return "", errors.New("reliability: the document does not have the two markers")
	}
	return before + begins + "\n" + table + "\n" + tableEnds + after, nil
}

// Table returns the rows in Markdown, in the order of their cases.
func Table(rows []Row) string {
	rows = slices.Clone(rows)
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(number(a.Cases), number(b.Cases)), strings.Compare(a.Cases, b.Cases),
			strings.Compare(a.Done, b.Done))
	})
	var b strings.Builder
	b.WriteString(
		"| case | what was done | to | jobs | ran | twice | windows over | units over, at most | units lost | " +
			"fault, s | decides again after, s | next start after, s | drain, s | put back per job |\n")
	b.WriteString("|---|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %s | %s | %s | %s | %.2f |\n",
			r.Cases, r.Done, r.Servers, r.Jobs, r.Ran, r.Twice, r.Over, r.Extra, r.Lost, seconds(r.Fault),
			seconds(r.Decided), seconds(r.Started), seconds(r.Took), r.PutBack)
	}
	return b.String()
}

// number returns the number of the first case that a row names: 5 of "F5, F20".
func number(cases string) int {
	digits := strings.TrimLeft(cases, "FT")
	if end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 1 << 30 // sorted after all rows with a number
	}
	return n
}

func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) }
