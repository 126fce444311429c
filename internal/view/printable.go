package view

import (
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns text that a screen shows and obeys in nothing: what is not printable is
// escaped as in Go, control characters, line ends, invisible characters and those that turn
// the direction of text with it. All text that comes from outside passes it before it is
// shown: names that users made, what a task failed with, who changed what. Text that is
// printable stays as it is.
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

func isPrintable(text string) bool {
	return utf8.ValidString(text) && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
}

// PrintableJSON returns a JSON document of the same meaning that is printable but for its
// line ends.
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

// PrintableLines is a writer of lines of text, which are printable then.
type PrintableLines struct{ W io.Writer }

// Write writes text. Its line ends stay.
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
