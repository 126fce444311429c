package lua_test

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	glua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"

	"github.com/asynq-throttle/asynq-throttle/lua"
)

// composed are the scripts as they run in Redis.
var composed = map[string]string{
	"reserve": lua.Reserve, "pull": lua.Pull, "leave": lua.Leave, "settle": lua.Settle, "running": lua.Running,
	"set": lua.Set, "report": lua.Report, "usage": lua.Usage, "lines": lua.Lines, "check": lua.Check,
	"edges": lua.Edges,
}

// file is one .lua file: its header and its code.
type file struct {
	path   string
	name   string   // without folder and .lua
	header []string // the comment lines it begins with, without "-- "
	uses   []string // the includes that it names
	code   string
	lines  int
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
		f := file{path: path, name: strings.TrimSuffix(filepath.Base(path), ".lua")}
		for line := range strings.Lines(string(text)) {
			f.lines++
			line = strings.TrimSuffix(line, "\n")
			comment, isComment := strings.CutPrefix(line, "-- ")
			switch {
			case strings.HasPrefix(comment, "uses: "):
				f.uses = append(f.uses, strings.Split(strings.TrimPrefix(comment, "uses: "), ", ")...)
			case isComment && f.code == "":
				f.header = append(f.header, comment)
			default:
				f.code += line + "\n"
			}
		}
		files = append(files, f)
	}
	return files
}

var (
	sectionStart = regexp.MustCompile(`^(Purpose|ARGV|Reply|Errors)\b`)
	argumentLine = regexp.MustCompile(`^ARGV\[(\d+)(\.\.)?\] \S`)
)

// TestHeaders: the header of each script has sections, in this order: its purpose, each argument on a line of its own,
// its reply, and its errors. Text that continues a line is indented below it. The header of each include says its
// purpose.
func TestHeaders(t *testing.T) {
	t.Parallel()
	for _, f := range readFiles(t, "*.lua") {
		var order []string
		for _, line := range f.header {
			start := sectionStart.FindString(line)
			switch {
			case start == "" && (len(order) == 0 || !strings.HasPrefix(line, "  ")):
				t.Errorf("%s: header line %q begins no section, and is not indented below a line of one", f.name, line)
			case start == "ARGV" && (!argumentLine.MatchString(line) || strings.Count(line, "ARGV[") != 1):
				t.Errorf("%s: header line %q does not name one argument", f.name, line)
			case start != "" && (len(order) == 0 || order[len(order)-1] != start):
				order = append(order, start)
			}
		}
		want := []string{"Purpose", "ARGV", "Reply", "Errors"}
		for _, without := range []string{"ARGV", "Errors"} {
			if !slices.Contains(order, without) {
				want = slices.DeleteFunc(want, func(s string) bool { return s == without })
			}
		}
		if !slices.Equal(order, want) {
			t.Errorf("%s: sections %v, want %v", f.name, order, want)
		}
	}
	for _, f := range readFiles(t, "include/*.lua") {
		if len(f.header) == 0 {
			t.Errorf("the header of include %s does not say its purpose", f.name)
		}
	}
}

// instant matches a header line that names an instant or a length of time.
var instant = regexp.MustCompile(`\b(start|slot|wait|until|from now|for how long|how far|when)\b`)

// TestArgumentsHaveUnits: an argument that is a time names its unit.
func TestArgumentsHaveUnits(t *testing.T) {
	t.Parallel()
	for _, f := range append(readFiles(t, "*.lua"), readFiles(t, "include/request.lua")...) {
		arguments, _, _ := strings.Cut(strings.Join(f.header, "\n"), "\nReply")
		_, arguments, _ = strings.Cut(arguments, "\nARGV") // behind the purpose
		for line := range strings.SplitSeq(arguments, "\n") {
			hasUnit := regexp.MustCompile(`\b(us|ms)\b`).MatchString(line)
			if instant.MatchString(line) && !hasUnit && !strings.Contains(line, `"`) {
				t.Errorf("%s: header line %q has a time and no unit", f.path, line)
			}
		}
	}
}

var (
	declaredArgument = regexp.MustCompile(`\bARGV\[(\d+)(\.\.)?\]`)
	usedArgument     = regexp.MustCompile(`\bARGV\[(\d+)\]`)
	usedFrom         = regexp.MustCompile(`\bfor \w+ = (\d+), #ARGV\b|\bunpack\(ARGV, (\d+)\)`)
)

// TestArguments: each of ARGV that a script uses is declared in its header or in the header of request, with which all
// scripts begin, and each declared argument is used. The only key is KEYS[1].
func TestArguments(t *testing.T) {
	t.Parallel()
	var shared file
	for _, f := range readFiles(t, "include/*.lua") {
		if f.name == "request" {
			shared = f
		} else if strings.Contains(f.code, "ARGV") {
			t.Errorf("include %s uses ARGV itself", f.name)
		}
	}
	checkArguments(t, shared, shared)
	for _, f := range readFiles(t, "*.lua") {
		with := shared
		if !strings.Contains(composed[f.name], strings.TrimSpace(shared.code)) {
			with.code = "" // check.lua goes without
		}
		checkArguments(t, f, with)
		for _, key := range regexp.MustCompile(`\bKEYS\b(?:\[(.*?)\])?`).FindAllStringSubmatch(composed[f.name], -1) {
			if key[1] != "1" {
				t.Errorf("%s uses %s; want KEYS[1] alone", f.name, key[0])
			}
		}
	}
}

func checkArguments(t *testing.T, f, shared file) {
	t.Helper()
	declared, open := make(map[int]bool), 1<<30
	headers := strings.Join(append(f.header, shared.header...), "\n")
	for _, match := range declaredArgument.FindAllStringSubmatch(headers, -1) {
		n, _ := strconv.Atoi(match[1])
		if match[2] != "" {
			open = min(open, n)
		} else {
			declared[n] = true
		}
	}
	used, from := make(map[int]bool), 1<<30
	for _, match := range usedArgument.FindAllStringSubmatch(f.code+shared.code, -1) {
		n, _ := strconv.Atoi(match[1])
		used[n] = true
		if !declared[n] && n < open {
			t.Errorf("%s: ARGV[%d] is used and not declared", f.name, n)
		}
	}
	for _, match := range usedFrom.FindAllStringSubmatch(f.code, -1) {
		n, _ := strconv.Atoi(match[1] + match[2])
		from = min(from, n)
	}
	if from < open {
		t.Errorf("%s: ARGV is read from %d on, and declared from %d on", f.name, from, open)
	}
	for n := range declared {
		if !used[n] && f.name != "check" {
			t.Errorf("%s: ARGV[%d] is declared and not used", f.name, n)
		}
	}
	if open < 1<<30 && !strings.Contains(f.code, "#ARGV") && !strings.Contains(f.code, "unpack(ARGV") {
		t.Errorf("%s: ARGV is declared from %d on and never read so", f.name, open)
	}
}

// Limits of a reader and of Lua. Lua allows 200 locals in a function, and the body of a script is one function; a
// function may use 60 locals of the functions around it.
const (
	mostLines      = 3809 // the most lines of all files, with comments
	mostLocals     = 28   // the most locals at the top of a file
	mostOfAll      = 188  // the most locals at the top of a script as it runs
	mostUpvalues   = 60
	mostLineLength = 120
)

// TestSizes: scripts stay small enough to read.
func TestSizes(t *testing.T) {
	t.Parallel()
	all := append(readFiles(t, "*.lua"), readFiles(t, "include/*.lua")...)
	lines := 0
	for _, f := range all {
		lines += f.lines
		if n := localsOf(parsed(t, f.name, f.code)); n > mostLocals {
			t.Errorf("%s has %d locals at its top, want at most %d", f.name, n, mostLocals)
		}
		for line := range strings.Lines(f.code) {
			if line = strings.TrimSuffix(line, "\n"); len(line) > mostLineLength {
				t.Errorf("%s has a line of %d bytes, want at most %d: %s", f.name, len(line), mostLineLength, line)
			}
		}
	}
	if lines > mostLines {
		t.Errorf("%d lines in all of lua/, want at most %d", lines, mostLines)
	}
	for name, text := range composed {
		chunk := parsed(t, name, text)
		if n := localsOf(bodyOf(chunk)); n > mostOfAll {
			t.Errorf("%s has %d locals at its top with its includes, want at most %d", name, n, mostOfAll)
		}
		proto, err := glua.Compile(chunk, name)
		if err != nil {
			t.Fatal(err)
		}
		eachFunction(proto, func(p *glua.FunctionProto) {
			if n := int(p.NumUpvalues); n > mostUpvalues {
				t.Errorf("%s, line %d: a function uses %d locals of the functions around it, Redis' Lua allows %d", name,
					p.LineDefined, n, mostUpvalues)
			}
		})
	}
}

// TestUsesAreNamed: a file names the includes whose names it uses, and no others. Only scripts name request, with which
// each of them begins. No file sets a name that another file has defined.
func TestUsesAreNamed(t *testing.T) {
	t.Parallel()
	owners, includes := make(map[string]string), readFiles(t, "include/*.lua")
	for _, f := range includes {
		for _, name := range exportsOf(parsed(t, f.name, f.code)) {
			owners[name] = f.name
		}
	}
	for _, f := range append(readFiles(t, "*.lua"), includes...) {
		isScript := !strings.HasPrefix(f.path, "include")
		used := make(map[string]string) // owner, and a name for which it is used
		eachGlobal(t, f.name, f.code, func(name string, isSet bool) {
			owner, known := owners[name]
			switch {
			case isSet:
				t.Errorf("%s sets %s, which it has not defined", f.path, name)
			case known && (owner != "request" || isScript):
				used[owner] = name
			case !known && !slices.Contains(provided, name):
				t.Errorf("%s uses %s, which no include returns", f.path, name)
			}
		})
		for _, name := range f.uses {
			if used[name] == "" {
				t.Errorf("%s names %s, and uses nothing of it", f.path, name)
			}
			delete(used, name)
		}
		for owner, name := range used {
			t.Errorf("%s uses %s of %s, and does not name that at its top", f.path, name, owner)
		}
	}
}

// exportsOf returns the names that an include returns, or all names at its top if it returns nothing.
func exportsOf(chunk []ast.Stmt) (names []string) {
	if last, is := chunk[len(chunk)-1].(*ast.ReturnStmt); is {
		for _, e := range last.Exprs {
			names = append(names, e.(*ast.IdentExpr).Value)
		}
		return names
	}
	for _, statement := range chunk {
		if local, is := statement.(*ast.LocalAssignStmt); is {
			names = append(names, local.Names...)
		}
	}
	return names
}

// TestIncludesReturnWhatIsUsed: an include returns what it has defined at its top, each name
// once, and another file uses it.
func TestIncludesReturnWhatIsUsed(t *testing.T) {
	t.Parallel()
	includes := readFiles(t, "include/*.lua")
	all := append(readFiles(t, "*.lua"), includes...)
	for _, f := range includes {
		chunk := parsed(t, f.name, f.code)
		last, is := chunk[len(chunk)-1].(*ast.ReturnStmt)
		if !is {
			continue // request: what all scripts know
		}
		seen := make(map[string]bool)
		for _, e := range last.Exprs {
			name := e.(*ast.IdentExpr).Value
			word := regexp.MustCompile(`(^|[^\w.])` + name + `\b`)
			if seen[name] || !slices.ContainsFunc(all,
				func(other file) bool { return other.code != f.code && word.MatchString(other.code) }) {
				t.Errorf("include %s returns %s twice, or for nobody", f.name, name)
			}
			seen[name] = true
		}
	}
}

// bodyOf returns the statements of the function that contains a composed script after the include request. The script
// check has no request: for it, bodyOf returns the chunk itself.
func bodyOf(chunk []ast.Stmt) []ast.Stmt {
	if last, is := chunk[len(chunk)-1].(*ast.ReturnStmt); is {
		if call, is := last.Exprs[0].(*ast.FuncCallExpr); is {
			if body, is := call.Func.(*ast.FunctionExpr); is {
				return body.Stmts
			}
		}
	}
	return chunk
}

func localsOf(chunk []ast.Stmt) int {
	n := 0
	for _, statement := range chunk {
		if local, is := statement.(*ast.LocalAssignStmt); is {
			n += len(local.Names)
		}
	}
	return n
}

func eachFunction(proto *glua.FunctionProto, visit func(p *glua.FunctionProto)) {
	visit(proto)
	for _, inner := range proto.FunctionPrototypes {
		eachFunction(inner, visit)
	}
}

func parsed(t *testing.T, name, text string) []ast.Stmt {
	t.Helper()
	chunk, err := parse.Parse(strings.NewReader(text), name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return chunk
}

// provided are the globals that a script may use: every server has them, and they do not mislead. print and os are not
// among them; tostring, which loses digits, is there only for the text of an error.
var provided = []string{
	"KEYS", "ARGV", "redis", "string", "math", "table", "tonumber", "tostring", "pairs", "ipairs", "type", "unpack",
	"error", "pcall", "select",
}

// eachGlobal visits the names that a text reads or sets and does not define.
func eachGlobal(t *testing.T, name, text string, visit func(global string, isSet bool)) {
	t.Helper()
	proto, err := glua.Compile(parsed(t, name, text), name)
	if err != nil {
		t.Fatal(err)
	}
	eachFunction(proto, func(p *glua.FunctionProto) {
		for _, instruction := range p.Code {
			// The upper 6 bits are the operation, the lower 18 the constant.
			switch operation := int(instruction >> 26); operation {
			case glua.OP_GETGLOBAL, glua.OP_SETGLOBAL:
				visit(p.Constants[int(instruction&0x3ffff)].String(), operation == glua.OP_SETGLOBAL)
			}
		}
	})
}

// TestScriptsHaveNoGlobals: a composed script reads only what Redis and Lua provide and
// sets nothing.
func TestScriptsHaveNoGlobals(t *testing.T) {
	t.Parallel()
	for name, text := range composed {
		eachGlobal(t, name, text, func(global string, isSet bool) {
			if isSet || !slices.Contains(provided, global) {
				t.Errorf("%s uses or sets the global %s; want only %v, and no set", name, global, provided)
			}
		})
		if shown := regexp.MustCompile(`tostring\((\w+)\)`).FindAllStringSubmatch(text, -1); len(shown) !=
			strings.Count(text, "tostring(") ||
			slices.ContainsFunc(shown, func(match []string) bool { return match[1] != "said" && match[1] != "problem" }) {
			t.Errorf("%s: only the text of an error may use tostring: %v", name, shown)
		}
	}
}

// textNames are the names of values in the scripts that are text, so that joining them loses nothing. Redis' Lua writes
// a joined number with 14 digits.
var textNames = []string{
	"prefix", "queue", "name", "text", "key", "lane", "flow", "list", "id", "value", "all", "rest", "tail", "ahead",
	"entry", "names", "set", "order",
	"reply", "costs_text", "holder", "log", "own", "mark", "short", "answers", "lines", "taken", "q", "ARGV",
	"arrival", "control", "heavy", "scope", "said", "err",
	"tags", "wait", "other", "from", "record", "lead", "first", "kind", "origin", "mode", "head", "was", "ids",
	"found", "member", "beside", "parts", "shadow", "held", "s", "found_due", "whose",
	"span", "precision_text", "class", "lanes", "marks", "expire_text", "seen_text", "now_text", "since",
	"uncharged", "kept_text",
	"BOOKING", "CLAIM", "WALK", "HAD_TURN", "CLASSES", "LATE",
	"note", "note_text", "pause_text", "adapted", "limits_text",
}

// textual are the functions that return text without lost digits.
var textual = []string{"format", "sub", "match", "hold_of", "limit_text", "tag_text", "table.concat", "redis.sha1hex",
	"string.format", "string.sub", "string.match", "select", "tostring", "lanes_of"}

// TestNumbersAreNotJoined: only text is joined with "..", never a value that may be a number.
func TestNumbersAreNotJoined(t *testing.T) {
	t.Parallel()
	for name, text := range composed {
		joined := 0
		walk(reflect.ValueOf(parsed(t, name, text)), func(node any) {
			join, is := node.(*ast.StringConcatOpExpr)
			if !is {
				return
			}
			joined++
			for _, side := range []ast.Expr{join.Lhs, join.Rhs} {
				if !isText(side) {
					t.Errorf(
						"%s, line %d: joins %s, which is not known to be text; use format('%%d', …), or add its "+
							"name to textNames in this test", name, side.Line(), named(side))
				}
			}
		})
		if joined == 0 && strings.Contains(text, " .. ") {
			t.Errorf("%s: no join found; this test has gone blind", name)
		}
	}
}

func named(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.IdentExpr:
		return e.Value
	case *ast.FuncCallExpr:
		return called(e) + "()"
	case *ast.AttrGetExpr:
		return named(e.Object) + "." + named(e.Key)
	case *ast.StringExpr:
		return e.Value
	}
	return "an expression"
}

func isText(expr ast.Expr) bool {
	switch e := expr.(type) {
	case *ast.StringExpr, *ast.StringConcatOpExpr: // a join is looked at itself
		return true
	case *ast.LogicalOpExpr: // "a and b": b, or nothing, which fails
		return isText(e.Rhs) && (e.Operator == "and" || isText(e.Lhs))
	case *ast.IdentExpr:
		return slices.Contains(textNames, e.Value)
	case *ast.FuncCallExpr:
		return slices.Contains(textual, called(e))
	case *ast.AttrGetExpr:
		if key, isName := e.Key.(*ast.StringExpr); isName {
			return slices.Contains(textNames, key.Value)
		}
		return isText(e.Object) // names[i]
	}
	return false
}

// called returns the name of the function that is called; empty for a method.
func called(call *ast.FuncCallExpr) string {
	switch f := call.Func.(type) {
	case *ast.IdentExpr:
		return f.Value
	case *ast.AttrGetExpr:
		object, isName := f.Object.(*ast.IdentExpr)
		key, isText := f.Key.(*ast.StringExpr)
		if isName && isText {
			return object.Value + "." + key.Value
		}
	}
	return ""
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

// TestEveryFileIsComposed: no script is left out of this test's list.
func TestEveryFileIsComposed(t *testing.T) {
	t.Parallel()
	for _, f := range readFiles(t, "*.lua") {
		if composed[f.name] == "" {
			t.Errorf("script %s is not composed, or not in this test's list", f.name)
		}
	}
}
