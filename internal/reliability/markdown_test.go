package reliability_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/asynq-throttle/asynq-throttle/internal/reliability"
)

const (
	root       = "../.."
	document   = root + "/docs/reliability.md"
	trust      = root + "/docs/trust.md"
	guarantees = root + "/docs/guide/guarantees.md"
	decision   = root + "/docs/decisions/0010-fault-cases-not-built.md"
	lastCase   = 68
	lastThreat = 15
)

var (
	testName   = regexp.MustCompile(`\b((?:Test|Fuzz)[A-Z0-9]\w*)`)
	testFunc   = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	caseNumber = regexp.MustCompile(`^\| ((?:[FT]\d+(?:, )?)+) \|`)
)

// TestDocumentNamesTests compares the documents with the tree: every test that they name
// exists, and every case has a row in the document, or a reason why it has none.
func TestDocumentNamesTests(t *testing.T) {
	t.Parallel()
	exist := make(map[string]bool)
	must(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range testFunc.FindAllSubmatch(text, -1) {
			exist[string(found[1])] = true
		}
		return err
	}))
	covered := make(map[string]bool)
	for _, path := range []string{document, decision, trust} {
		text, err := os.ReadFile(path)
		must(t, err)
		for line := range strings.Lines(string(text)) {
			for _, found := range testName.FindAllStringSubmatch(line, -1) {
				if !exist[found[1]] {
					t.Errorf("%s names %s, which does not exist", path, found[1])
				}
			}
			if found := caseNumber.FindStringSubmatch(line); found != nil {
				for name := range strings.SplitSeq(found[1], ", ") {
					covered[name] = true
				}
			}
		}
	}
	for letter, last := range map[string]int{"F": lastCase, "T": lastThreat} {
		for n := 1; n <= last; n++ {
			if name := letter + strconv.Itoa(n); !covered[name] {
				t.Errorf("%s has neither a test nor a reason why not", name)
			}
		}
	}
}

// TestEachGuaranteeNamesItsTests: each heading of the guarantees has a row in the report of trust, with a test.
func TestEachGuaranteeNamesItsTests(t *testing.T) {
	t.Parallel()
	promises, err := os.ReadFile(guarantees)
	must(t, err)
	rows, err := os.ReadFile(trust)
	must(t, err)
	headings := regexp.MustCompile(`(?m)^##+ (.+)$`).FindAllStringSubmatch(string(promises), -1)
	if len(headings) == 0 {
		t.Fatalf("%s has no headings", guarantees)
	}
	for _, heading := range headings {
		named := false
		for line := range strings.Lines(string(rows)) {
			named = named || strings.HasPrefix(line, "| ["+heading[1]+"](") && testName.MatchString(line)
		}
		if !named {
			t.Errorf("%s has no row with a test for %q", trust, heading[1])
		}
	}
}

// TestReplace checks that the new table replaces the old one, in the order of the cases, and that
// nothing else of a document changes.
func TestReplace(t *testing.T) {
	t.Parallel()
	const before, after = "# Title\n\n<!-- make reliability writes from here -->\n", "<!-- to here -->\n\nThe end.\n"
	rows := []reliability.Row{
		{Cases: "F20", Done: "FLUSHALL", Jobs: 10, Ran: 10, Extra: 3, Started: 20 * time.Millisecond},
		{Cases: "F5", Done: "restart", Jobs: 10, Ran: 10, PutBack: 0.5},
	}
	got, err := reliability.Replace(before+"an old table\n"+after, rows)
	must(t, err)
	table := reliability.Table(rows)
	if want := before + "\n" + table + "\n" + after; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if first, second := strings.Index(table, "| F5 | restart |"),
		strings.Index(table, "| F20 | FLUSHALL |"); first < 0 || second < first {
		t.Errorf("the rows are not in order: %s", table)
	}
	if _, err := reliability.Replace("no markers", rows); err == nil {
		t.Error("a document without markers was taken")
	}
}

// TestRows checks that rows are read as they were written.
func TestRows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rows")
	want := []reliability.Row{{Cases: "F5", Jobs: 3, Fault: time.Second, PutBack: 0.25}, {Cases: "F1, F21", Lost: 7}}
	for _, row := range want {
		must(t, row.Append(path))
	}
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	got, err := reliability.ReadRows(file)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}
