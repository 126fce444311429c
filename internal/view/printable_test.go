package view

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"": "", "acme": "acme", "big corp": "big corp", "Zoë 会社 👍": "Zoë 会社 👍", `a\nb "c"`: `a\nb "c"`,
		"a\nb\r\tc": `a\nb\r\tc`, "a\x00b": `a\x00b`, "\x1b[2J": `\x1b[2J`, "\x1b]0;root\a": `\x1b]0;root\a`,
		"gpj\u202eexe": `gpj\u202eexe`, "\u009b2J": `\u009b2J`, "a\xffb": `a\xffb`, "\x9b2J": `\x9b2J`,
		"\U000e0041": `\U000e0041`, "\ufffd": "\ufffd",
	} {
		if got := Printable(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// TestName: a name that might be misread among words is quoted, a long one is shortened.
func TestName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 61)
	for name, want := range map[string]string{
		"acme": "acme", "Zoë": "Zoë", "d/a": "d/a", "big corp": `"big corp"`, `a"b`: `"a\"b"`, "a\x1b[31m": `"a\x1b[31m"`,
		"gpj\u202eexe": `"gpj\u202eexe"`, long: long[:60] + "…", " " + long: `" ` + long[:59] + `"…`,
	} {
		if got := Name(name); got != want {
			t.Errorf("%q is shown as %s, want %s", name, got, want)
		}
	}
	if got := ScopeKey("tenant", "acme is paused"); got != `tenant "acme is paused"` {
		t.Errorf("a scope key is shown as %s", got)
	}
}

// FuzzPrintable: whatever comes, nothing of it is obeyed by a screen, what is printable stays
// as it is, and JSON means what it meant.
func FuzzPrintable(f *testing.F) {
	for _, text := range []string{"acme", "\x1b[2J\x1b]0;x\a", "a\u202eb\r\n", "\xff\x9b", "\U000e0041\u2028", `"\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := Printable(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is shown as %q", text, got)
		}
		if again := Printable(got); again != got {
			t.Errorf("%q is shown as %q, and that as %q", text, got, again)
		}
		var meant string
		document, err := json.Marshal(strings.ToValidUTF8(text, "?"))
		if err != nil {
			t.Fatal(err)
		}
		safe := PrintableJSON(string(document))
		if err := json.Unmarshal([]byte(safe), &meant); err != nil || meant != strings.ToValidUTF8(text, "?") {
			t.Errorf("%q is %s, which means %q, %v", text, safe, meant, err)
		}
		if strings.ContainsFunc(safe, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%q is %q", text, safe)
		}
		var lines strings.Builder
		if n, err := (PrintableLines{&lines}).Write([]byte(text)); n != len(text) || err != nil ||
			strings.ContainsFunc(lines.String(), func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }) {
			t.Errorf("%q is written as %q, %v", text, lines.String(), err)
		}
	})
}
