package throttle_test

import (
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// otherTests are the first words of test files that are not named after a source file.
var otherTests = []string{"example", "fault", "property", "story", "support", "main", "export", "bench", "deploy"}

var aTest = regexp.MustCompile(`(?m)^func (Test|Fuzz|Benchmark|Example)\w*\((t \*testing\.T|f |b |\))`)

// TestNamesOfTestFiles: a test file begins with the name of a source file of its folder, of the folder itself, or
// with a word that says what kind of test it has. Folders that have nothing but tests are left out.
func TestNamesOfTestFiles(t *testing.T) {
	t.Parallel()
	sources, tests := make(map[string][]string), make(map[string][]string)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		folder, name := filepath.Split(path)
		switch test, isTest := strings.CutSuffix(name, "_test.go"); {
		case isTest:
			tests[folder] = append(tests[folder], test)
		case name != "doc.go" && (filepath.Ext(name) == ".go" || filepath.Ext(name) == ".lua"):
			sources[folder] = append(sources[folder], strings.TrimSuffix(name, filepath.Ext(name)))
		}
		return nil
	})
	if err != nil || len(sources["throttle/"]) == 0 {
		t.Fatalf("%v, %d sources in throttle/", err, len(sources["throttle/"]))
	}
	for folder, named := range tests {
		known := slices.Concat(sources[folder], otherTests, []string{filepath.Base(folder)})
		for _, name := range named {
			begins := func(word string) bool { return strings.HasPrefix(name+"_", word+"_") }
			if len(sources[folder]) > 0 && !slices.ContainsFunc(known, begins) {
				t.Errorf("%s%s_test.go is named after no source file and begins with none of %q", folder, name, otherTests)
			}
			if text := read(t, folder+name+"_test.go"); begins("support") && aTest.MatchString(text) {
				t.Errorf("%s%s_test.go has a test: support_ is for what tests share", folder, name)
			}
		}
	}
}
