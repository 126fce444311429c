package view

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text that a screen shows without obeying it. As in Go, it escapes what is not
// printable: control characters, line ends, invisible characters, and those that change the
// direction of text. All foreign text passes it before it is shown: names that users chose, the
// error of a task, the author of a change. Printable text is unchanged.
func Printable(text string) string {
	if isPrintable(text) {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, size := utf8.DecodeRuneInString(text)
		switch {
		case r == utf8.RuneError && size == 1:
			b.WriteString(`\x` + hex(uint64(text[0]), 2))
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		text = text[size:]
	}
	return b.String()
}

// mostShown is how many characters of a name are shown.
const mostShown = 60

// Name formats a name that users chose, among words: shortened if it is long, and quoted if a terminal or a reader
// might misread it.
func Name(name string) string {
	runes := []rune(name)
	rest := ""
	if len(runes) > mostShown {
		runes, rest = runes[:mostShown], "…"
	}
	for _, r := range runes {
		if !unicode.IsPrint(r) || r == unicode.ReplacementChar || r == ' ' || r == '"' {
			return strconv.Quote(string(runes)) + rest
		}
	}
	return string(runes) + rest
}

func isPrintable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// PrintableJSON returns a JSON document of the same meaning in which everything but line ends is
// printable.
func PrintableJSON(document string) string {
	var b strings.Builder
	for _, r := range document {
		switch {
		case r == '\n' || unicode.IsPrint(r):
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			b.WriteString(`\u` + hex(uint64(0xd800+r>>10), 4) + `\u` + hex(uint64(0xdc00+r&0x3ff), 4))
		default:
			b.WriteString(`\u` + hex(uint64(r), 4))
		}
	}
	return b.String()
}

func hex(n uint64, digits int) string {
	text := strconv.FormatUint(n, 16)
	return strings.Repeat("0", max(0, digits-len(text))) + text
}

// PrintableLines is a writer that makes lines of text printable.
type PrintableLines struct{ W io.Writer }

// Write writes text and keeps its line ends.
func (p PrintableLines) Write(text []byte) (int, error) {
	lines := strings.Split(string(text), "\n")
	for i, line := range lines {
		lines[i] = Printable(strings.ReplaceAll(line, "\t", "  "))
	}
	if _, err := io.WriteString(p.W, strings.Join(lines, "\n")); err != nil {
		return 0, err
	}
	return len(text), nil
}
