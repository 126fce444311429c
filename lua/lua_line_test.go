package lua_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// onlyRedis are the includes without a counterpart in package line, which keeps its state in memory.
var onlyRedis = map[string]string{
	"request": "arguments that every script has",
	"scopes":  "settings of run time, and their text",
	"grants":  "keys of grants, and their text",
	"records": "names and texts in Redis",
	"usual":   "a short way for the usual case",
	"ontime":  "a short way for booked jobs that come on time",
}

// otherNames are functions of includes whose counterpart in package line has another name, as the types and methods of
// Go suggest it.
var otherNames = map[string]string{
	"key.follows_until": "asOf",
	"kinds.precedes":    "Compare",
	"kinds.with_span":   "subWindows",
	"priority.parts":    "classOf",
	"priority.tags":     "of",
	"queue.hurry_from":  "hurryAll",
	"ramp.parse":        "parseSteps",
	"queue.sweep":       "hurryAll",
}

// onlyInLua are functions of includes without a counterpart.
var onlyInLua = map[string]string{
	"decide.count_jobs":       "a field in Go",
	"decide.limit_text":       "text of a limit",
	"decide.reachable":        "memory loses no keys",
	"edges.edge_at":           "text of edges",
	"edges.edges_of":          "text of edges",
	"edges.knows":             "memory knows all periods",
	"edges.missing_edges":     "memory knows all periods",
	"entries.put":             "entries that have been read as lists",
	"key.read_adapted":        "text of a scope key",
	"key.read_own":            "text of a scope key",
	"key.read_key":            "text of a scope key",
	"key.save_key":            "text of a scope key",
	"key.save_keys":           "text of a scope key",
	"ledger.new_ledger":       "a literal in Go",
	"ledger.log_of":           "the log of a ledger",
	"ledger.read_log":         "the log of a ledger",
	"ledger.parse_ledgers":    "text of a scope key",
	"ledger.mend":             "memory loses no log",
	"ledger.older":            "text of entries",
	"ledger.last_of":          "text of entries",
	"ledger.book_in_searches": "searches that go on, for speed",
	"ledger.spill":            "the log of a ledger",
	"ledger.cut":              "the log of a ledger",
	"ledger.leaves_at":        "expiry",
	"line.check_line":         "foreign data in Redis",
	"line.check_record":       "foreign data in Redis",
	"line.lacks_edges":        "memory knows all periods",
	"overdue.add_job":         "append in Go",
	"placing.spent_at":        "entries are read in chunks",
	"placing.behind":          "entries are read from their end",
	"placing.promised_in":     "entries are read once",
	"placing.window_at":       "searches that go on, for speed",
	"placing.slide":           "searches that go on, for speed",
	"placing.copy_of":         "searches that go on, for speed",
	"placing.slide_on":        "searches that go on, for speed",
	"placing.search_on":       "searches that go on, for speed",
	"priority.priority_of":    "text of a class",
	"priority.expire":         "expiry",
	"queue.flows_in":          "a field in Go",
	"queue.walk_of":           "text of a walk",
	"queue.save_walk":         "text of a walk",
	"queue.walk_again":        "text of a walk",
	"queue.hurry_lane":        "a loop in Go",
	"queue.save_line":         "expiry",
	"ramp.takes":              "in package calendar",
	"ramp.units":              "in package calendar",
	"running.run_of":          "text of a run",
	"running.count_at":        "changes of a ledger are gathered, for speed",
	"running.move_in":         "changes of a ledger are gathered, for speed",
	"running.count_moves":     "changes of a ledger are gathered, for speed",
	"running.cooldown_of":     "text of an argument",
	"tags.tag_text":           "text of a tag",
	"tags.save_virtual_times": "a field in Go",
	"tags.serve":              "a field in Go",
	"tags.virtual_time":       "a field in Go",
	"tags.set_virtual_time":   "a field in Go",
	"turn.note_trouble":       "foreign data in Redis",
	"waiting.counted_terms":   "text of a record",
	"waiting.fields_of":       "text of a lane",
	"waiting.read_lengths":    "text of a length",
	"waiting.count":           "memory counts whenever it is asked",
	"waiting.save_lengths":    "memory counts whenever it is asked",
	"waiting.is_counted":      "a field in Go",
	"waiting.marks_of":        "text of a record",
}

// TestFunctionsAreThoseOfLine: a function of an include has its counterpart in the file of package line with the name
// of the include. The counterpart has the same name in Go's spelling, except for short lists. Lua has no methods: it
// may add "is_", "_of" or "_in" where Go has a receiver.
func TestFunctionsAreThoseOfLine(t *testing.T) {
	t.Parallel()
	inGo := functionsOfLine(t)
	seen := make(map[string]bool)
	defined := regexp.MustCompile(`(?m)^(?:local )?function (?:\w+\.)?(\w+)`)
	for _, f := range readFiles(t, "include/*.lua") {
		if onlyRedis[f.name] != "" {
			continue
		}
		for _, match := range defined.FindAllStringSubmatch(f.code, -1) {
			name := f.name + "." + match[1]
			seen[name] = true
			if onlyInLua[name] != "" {
				continue
			}
			bare := strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(match[1], "is_"), "_of"), "_in")
			names := []string{match[1], bare}
			if other := otherNames[name]; other != "" {
				names = []string{other}
			}
			if !slices.ContainsFunc(names, func(s string) bool { return inGo[f.name+"."+inGoSpelling(s)] }) {
				t.Errorf("%s has no function of its name in internal/line/%s.go", name, f.name)
			}
		}
	}
	for _, list := range []map[string]string{otherNames, onlyInLua} {
		for name := range list {
			if !seen[name] {
				t.Errorf("%s is an exception of this test, and no function", name)
			}
		}
	}
}

// inGoSpelling writes the name of a Lua function without underscores; names are compared without their case.
func inGoSpelling(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// functionsOfLine returns the functions and methods of package line, as "file.function" in small letters.
func functionsOfLine(t *testing.T) map[string]bool {
	t.Helper()
	paths, err := filepath.Glob("../internal/line/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files of package line (%v)", err)
	}
	functions := make(map[string]bool)
	for _, path := range paths {
		file := strings.TrimSuffix(filepath.Base(path), ".go")
		if strings.HasSuffix(file, "_test") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			if function, is := declaration.(*ast.FuncDecl); is {
				functions[file+"."+strings.ToLower(function.Name.Name)] = true
			}
		}
	}
	return functions
}
