package lua_test

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	glua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/asynq-throttle/asynq-throttle/lua"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

var update = flag.Bool("update", false, "write the composed scripts to testdata instead of comparing them")

// composed are the scripts as they run in Redis.
var composed = map[string]string{
	"reserve": lua.Reserve, "peek": lua.Peek, "pull": lua.Pull, "sweep": lua.Sweep, "admit": lua.Admit, "skip": lua.Skip, "weed": lua.Weed, "cancel": lua.Cancel,
	"usage": lua.Usage, "count": lua.Count, "lines": lua.Lines,
	"settle": lua.Settle, "pause": lua.Pause, "resume": lua.Resume, "set": lua.Set, "recall": lua.Recall, "adopt": lua.Adopt, "controls": lua.Controls, "lanes": lua.Lanes, "entries": lua.Entries, "waiting": lua.Waiting, "explain": lua.Explain, "check": lua.Check,
}

// file is one .lua file: its header and what follows.
type file struct {
	name     string   // without folder and .lua
	header   []string // the comment lines it begins with, without "-- "
	code     string
	includes []string
}

func readFiles(t *testing.T, pattern string) []file {
	t.Helper()
	paths, err := filepath.Glob(pattern)
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files %s (%v)", pattern, err)
	}
	files := make([]file, 0, len(paths))
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f := file{name: strings.TrimSuffix(filepath.Base(path), ".lua")}
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSuffix(line, "\n")
			include, isInclude := strings.CutPrefix(strings.TrimSpace(line), "-- include: ")
			comment, isComment := strings.CutPrefix(line, "--")
			switch {
			case isInclude:
				f.includes = append(f.includes, include)
			case isComment && f.code == "":
				f.header = append(f.header, strings.TrimPrefix(comment, " "))
			default:
				f.code += line + "\n"
			}
		}
		files = append(files, f)
	}
	return files
}

// section is one entry of a script's header: "KEYS[2...] calendar: for each …".
type section struct {
	kind  string // Purpose, KEYS, ARGV, Reply, Errors, Cost, Expiry
	index int    // of KEYS, ARGV, Reply
	rest  bool   // and all that follow
	text  string
}

var sectionStart = regexp.MustCompile(`^(Purpose|KEYS|ARGV|Reply|Errors|Cost|Expiry)(?:\[(\d+)(\.\.\.)?\])?(.*)$`)

func sections(t *testing.T, f file) []section {
	t.Helper()
	var all []section
	for _, line := range f.header {
		start := sectionStart.FindStringSubmatch(line)
		switch {
		case start != nil:
			index, _ := strconv.Atoi(start[2])
			all = append(all, section{kind: start[1], index: index, rest: start[3] != "", text: strings.TrimSpace(start[4])})
		case strings.HasPrefix(line, "  ") && len(all) > 0:
			all[len(all)-1].text += " " + strings.TrimSpace(line)
		default:
			t.Errorf("%s: header line %q begins no section and continues none", f.name, line)
		}
	}
	return all
}

// TestHeaders: each script says in fixed sections what it takes, replies and
// leaves behind.
func TestHeaders(t *testing.T) {
	t.Parallel()
	described := regexp.MustCompile(`^[a-z][a-z_ ]*: \S`)
	for _, f := range readFiles(t, "*.lua") {
		var order []string
		last := make(map[string]section)
		for _, s := range sections(t, f) {
			if len(order) == 0 || order[len(order)-1] != s.kind {
				order = append(order, s.kind)
			}
			before := last[s.kind]
			indexed := s.kind == "KEYS" || s.kind == "ARGV" || s.kind == "Reply"
			switch {
			case indexed && (s.index != before.index+1 || before.rest):
				t.Errorf("%s: %s[%d] follows [%d]; want every index once, in order, the open one last", f.name, s.kind, s.index, before.index)
			case indexed && !described.MatchString(s.text) && !s.rest:
				t.Errorf("%s: %s[%d] is %q; want \"name: what it is\"", f.name, s.kind, s.index, s.text)
			case !indexed && (s.index != 0 || before.kind != ""):
				t.Errorf("%s: section %s is there twice, or has an index", f.name, s.kind)
			case len(s.text) < 3:
				t.Errorf("%s: section %s is empty", f.name, s.kind)
			}
			last[s.kind] = s
		}
		if want := []string{"Purpose", "KEYS", "ARGV", "Reply", "Errors", "Cost", "Expiry"}; !slices.Equal(order, want) {
			t.Errorf("%s: sections %v, want %v", f.name, order, want)
		}
	}
}

var (
	indexed = regexp.MustCompile(`\b(KEYS|ARGV)\[(\d+)\]`)
	passed  = regexp.MustCompile(`\b(KEYS|ARGV), (\d+)\b`)
	tables  = regexp.MustCompile(`\b(KEYS|ARGV)\b`)
)

// TestKeysAndArguments: each KEYS and ARGV that the header declares is used, each
// that is used is declared, and all are bound in the first paragraph of the code.
func TestKeysAndArguments(t *testing.T) {
	t.Parallel()
	for _, f := range readFiles(t, "*.lua") {
		var declared, used []place
		for _, s := range sections(t, f) {
			if s.kind == "KEYS" || s.kind == "ARGV" {
				declared = append(declared, place{s.kind, s.index, s.rest})
			}
		}
		used = append(used, places(indexed, f.code, false)...)
		used = append(used, places(passed, f.code, true)...)
		for _, p := range declared {
			if !slices.ContainsFunc(used, p.within) {
				t.Errorf("%s: %v is declared and not used", f.name, p)
			}
		}
		for _, p := range used {
			if !slices.ContainsFunc(declared, p.within) {
				t.Errorf("%s: %v is used and not declared", f.name, p)
			}
		}
		if all, known := len(tables.FindAllString(f.code, -1)), len(indexed.FindAllString(f.code, -1))+len(passed.FindAllString(f.code, -1)); all != known {
			t.Errorf("%s: KEYS or ARGV is used %d times, %d of them as [number] or passed on from a number", f.name, all, known)
		}
		if _, after, _ := strings.Cut(f.code, "\n\n"); tables.MatchString(after) {
			t.Errorf("%s: KEYS or ARGV is used after the first paragraph of the code, which binds them:\n%s", f.name, after)
		}
	}
	for _, f := range readFiles(t, "include/*.lua") {
		if tables.MatchString(f.code) {
			t.Errorf("include %s uses KEYS or ARGV itself; want parameters", f.name)
		}
	}
}

// place is one of KEYS or ARGV, or one and all that follow.
type place struct {
	table string
	index int
	rest  bool
}

func places(pattern *regexp.Regexp, code string, rest bool) []place {
	var all []place
	for _, match := range pattern.FindAllStringSubmatch(code, -1) {
		index, _ := strconv.Atoi(match[2])
		all = append(all, place{match[1], index, rest})
	}
	return all
}

// within tells whether a place is another, or one of those that follow it.
func (p place) within(other place) bool {
	return p.table == other.table && (p.index == other.index || other.rest && p.index > other.index)
}

// TestErrorCodes: the codes that a script can reply are those its header names.
func TestErrorCodes(t *testing.T) {
	t.Parallel()
	code := regexp.MustCompile(`THROTTLE_[A-Z]+`)
	for _, f := range readFiles(t, "*.lua") {
		declared, replied := make(map[string]bool), make(map[string]bool)
		for _, s := range sections(t, f) {
			if s.kind == "Errors" {
				for _, c := range code.FindAllString(s.text, -1) {
					declared[c] = true
				}
			}
		}
		for _, c := range code.FindAllString(withoutComments(composed[f.name]), -1) {
			replied[c] = true
		}
		if diff := cmp.Diff(declared, replied); diff != "" {
			t.Errorf("%s: error codes (-header +code):\n%s", f.name, diff)
		}
	}
}

// TestConstants: the large numbers in the scripts are the bounds of the Go side,
// or spans of time that this list names.
func TestConstants(t *testing.T) {
	t.Parallel()
	known := map[string]string{
		strconv.FormatInt(throttle.MaxUnits, 10):                 "MaxUnits",
		strconv.FormatInt(throttle.MaxWindow.Microseconds(), 10): "MaxWindow in us",
		"500000":           "half a second in us",
		"1000000":          "a second in us",
		"10000000":         "how long nobody is pulled at most",
		"300000000":        "how long a lane is set aside at most",
		"240000000":        "how long one that is held",
		"0000000000000002": "the digits of 1 + 2^-52",
		"30000000":         "how far back a clock may step",
		"60000000":         "how long a grant is known",
		"86400000":         "a day in ms",
		"3600000":          "an hour in ms",
	}
	number := regexp.MustCompile(`\b\d{5,}\b`)
	for name, text := range composed {
		for _, n := range number.FindAllString(withoutComments(text), -1) {
			if known[n] == "" {
				t.Errorf("%s: the number %s is none of the bounds that the Go side has: %v", name, n, slices.Sorted(maps.Keys(known)))
			}
		}
		takesLimits := strings.Contains(text, "limits of KEYS")
		if takesLimits && !strings.Contains(text, strconv.FormatInt(throttle.MaxWindow.Microseconds(), 10)) {
			t.Errorf("%s does not check windows against MaxWindow", name)
		}
	}
}

func withoutComments(text string) string {
	var code strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			code.WriteString(line)
		}
	}
	return code.String()
}

// TestIncludes: an include is a comment and one local function called like the
// file. It uses what it includes and expects no other name from the script that
// it ends up in.
func TestIncludes(t *testing.T) {
	t.Parallel()
	for _, f := range readFiles(t, "include/*.lua") {
		chunk := parsed(t, f.name, f.code)
		names := ""
		for _, statement := range chunk {
			local, isLocal := statement.(*ast.LocalAssignStmt)
			if !isLocal || len(local.Exprs) != 1 {
				t.Errorf("include %s does more than to define a local", f.name)
				continue
			}
			if _, isFunction := local.Exprs[0].(*ast.FunctionExpr); !isFunction {
				t.Errorf("include %s defines %v, which is no function", f.name, local.Names)
			}
			names += strings.Join(local.Names, " ")
		}
		if names != f.name || len(chunk) != 1 {
			t.Errorf("include %s defines %q; want one function of its own name", f.name, names)
		}
		if len(f.header) == 0 {
			t.Errorf("include %s does not say what it is for", f.name)
		}
		checkGlobals(t, f.name, chunk, f.includes)
		checkUsed(t, f)
	}
	for _, f := range readFiles(t, "*.lua") {
		checkUsed(t, f)
	}
}

func checkUsed(t *testing.T, f file) {
	t.Helper()
	for _, include := range f.includes {
		if !regexp.MustCompile(`\b` + include + `\(`).MatchString(f.code) {
			t.Errorf("%s includes %s and does not call it", f.name, include)
		}
	}
}

// TestScriptsHaveNoGlobals: a composed script reads only what Redis and Lua
// provide and sets nothing.
func TestScriptsHaveNoGlobals(t *testing.T) {
	t.Parallel()
	for name, text := range composed {
		checkGlobals(t, name, parsed(t, name, text), []string{"KEYS", "ARGV"})
	}
}

// provided are the globals a script may use: there in every server, and not
// misleading. tostring loses digits, print and os have no place.
var provided = []string{"redis", "string", "math", "table", "tonumber", "pairs", "type", "ipairs", "unpack", "error"}

func checkGlobals(t *testing.T, name string, chunk []ast.Stmt, more []string) {
	t.Helper()
	proto, err := glua.Compile(chunk, name)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	read, set := globals(proto)
	for _, global := range read {
		if !slices.Contains(provided, global) && !slices.Contains(more, global) {
			t.Errorf("%s uses the global %s; want only %v and %v", name, global, provided, more)
		}
	}
	if len(set) > 0 {
		t.Errorf("%s sets the globals %v; want locals", name, set)
	}
}

// globals lists the globals that compiled code reads and sets. An instruction's
// upper 6 bits are the operation, its lower 18 the constant.
func globals(proto *glua.FunctionProto) (read, set []string) {
	for _, instruction := range proto.Code {
		constant := int(instruction & 0x3ffff)
		switch int(instruction >> 26) {
		case glua.OP_GETGLOBAL:
			read = append(read, proto.Constants[constant].String())
		case glua.OP_SETGLOBAL:
			set = append(set, proto.Constants[constant].String())
		}
	}
	for _, inner := range proto.FunctionPrototypes {
		r, s := globals(inner)
		read, set = append(read, r...), append(set, s...)
	}
	return read, set
}

func parsed(t *testing.T, name, text string) []ast.Stmt {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return chunk
}

// texts are the names of what is text in the scripts, so that joining it loses
// nothing. Redis' Lua writes a joined number with 14 digits.
var texts = []string{
	"totals", "text", "other", "others", "window", "windows", "key", "keys", "id", "lane", "fair", "hash", "queue", "aside",
	"control", "name", "names", "scope", "rest", "own", "general", "mode", "pieces", "head", "granted", "since",
}

// textual are the functions that return text which has lost nothing.
var textual = []string{"string.format", "string.sub", "set_aside"}

// TestNumbersAreNotJoined: only text is joined with ".." and table.concat, never
// what may be a number.
func TestNumbersAreNotJoined(t *testing.T) {
	t.Parallel()
	for name, text := range composed {
		joined := 0
		walk(reflect.ValueOf(parsed(t, name, text)), func(node any) {
			var sides []ast.Expr
			switch n := node.(type) {
			case *ast.StringConcatOpExpr:
				sides = []ast.Expr{n.Lhs, n.Rhs}
				joined++
			case *ast.FuncCallExpr:
				if called(n) == "table.concat" {
					sides = n.Args
				}
			}
			for _, side := range sides {
				if !isText(side) {
					t.Errorf("%s, line %d: joins what is not known to be text; use string.format('%%d', …), or add its name to texts in this test", name, side.Line())
				}
			}
		})
		if joined == 0 && strings.Contains(withoutComments(text), " .. ") {
			t.Errorf("%s: no join found; this test has gone blind", name)
		}
	}
}

func isText(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.StringExpr, *ast.StringConcatOpExpr: // a join is looked at itself
		return true
	case *ast.LogicalOpExpr: // "a and b": b, or nothing, which fails
		return isText(e.Rhs) && (e.Operator == "and" || isText(e.Lhs))
	case *ast.IdentExpr:
		return slices.Contains(texts, e.Value)
	case *ast.FuncCallExpr:
		return called(e) == "table.concat" || slices.Contains(textual, called(e)) // the former is looked at itself
	case *ast.AttrGetExpr:
		if key, isName := e.Key.(*ast.StringExpr); isName {
			return slices.Contains(texts, key.Value)
		}
		return isText(e.Object) // keys[k]
	}
	return false
}

// called is the name of the function that is called; empty for a method.
func called(call *ast.FuncCallExpr) string {
	switch f := call.Func.(type) {
	case *ast.IdentExpr:
		return f.Value
	case *ast.AttrGetExpr:
		return path(f)
	}
	return ""
}

func path(field *ast.AttrGetExpr) string {
	object, isName := field.Object.(*ast.IdentExpr)
	key, isText := field.Key.(*ast.StringExpr)
	if !isName || !isText {
		return ""
	}
	return object.Value + "." + key.Value
}

// walk visits every node of a syntax tree.
func walk(v reflect.Value, visit func(node any)) {
	switch v.Kind() {
	case reflect.Interface:
		walk(v.Elem(), visit)
	case reflect.Pointer:
		if !v.IsNil() {
			visit(v.Interface())
			walk(v.Elem(), visit)
		}
	case reflect.Slice:
		for i := range v.Len() {
			walk(v.Index(i), visit)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				walk(v.Field(i), visit)
			}
		}
	}
}

// TestCommands: a script calls commands that stand there in plain text, on keys
// that were declared, and those that change nothing only ones that read.
func TestCommands(t *testing.T) {
	t.Parallel()
	reading := []string{"TIME", "EXISTS", "PTTL", "GET", "HGET", "HMGET", "HEXISTS", "HSCAN", "ZCARD", "ZCOUNT", "ZRANGE", "ZRANGEBYSCORE", "ZSCAN", "ZSCORE", "ZRANK"}
	allowed := append([]string{"SET", "DEL", "PEXPIRE", "PERSIST", "HSET", "HDEL", "HINCRBY", "ZADD", "ZREM"}, reading...)
	command := regexp.MustCompile(`redis\.p?call\(\s*'([A-Za-z]+)'`)
	for name, text := range composed {
		calls := command.FindAllStringSubmatch(text, -1)
		if total := strings.Count(text, "redis.call(") + strings.Count(text, "redis.pcall("); total != len(calls) {
			t.Errorf("%s: %d calls, %d of a command that stands there", name, total, len(calls))
		}
		may := allowed
		if name == "check" {
			may = append([]string{"INFO"}, allowed...) // the others must do without
		}
		if slices.Contains([]string{"peek", "usage", "count", "lines", "controls"}, name) {
			may = reading // they change nothing
		}
		for _, call := range calls {
			if !slices.Contains(may, call[1]) {
				t.Errorf("%s calls %s; want only %v", name, call[1], may)
			}
		}
	}
}

// TestComposedScripts compares what runs in Redis with the text in testdata, so
// that a review sees what a change of an include changes.
func TestComposedScripts(t *testing.T) {
	t.Parallel()
	names := make(map[string]bool)
	for name, text := range composed {
		path := filepath.Join("testdata", name+".lua")
		names[path] = true
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), text); diff != "" {
			t.Errorf("%s is not what is composed (go test ./lua -update writes it anew; -file +composed):\n%s", path, diff)
		}
	}
	there, err := filepath.Glob("testdata/*.lua")
	if err != nil || len(there) != len(names) {
		t.Errorf("%d files in testdata for %d scripts: %v (%v)", len(there), len(names), there, err)
	}
	for _, f := range readFiles(t, "*.lua") {
		if composed[f.name] == "" {
			t.Errorf("script %s is not composed, or not in this test's list", f.name)
		}
	}
}
