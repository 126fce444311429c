package throttle_test

import (
	"regexp"
	"strings"
	"testing"
)

// retired are words that the glossary replaced, and phrases that hide who does what.
var retired = map[string]*regexp.Regexp{
	"put back":                         regexp.MustCompile(`(?i)\b(denied|deny|denies|denials?)\b`),
	"served share":                     regexp.MustCompile(`(?i)\bpart that is served\b|\b(under|than) the part\b`),
	"flow":                             regexp.MustCompile(`(?i)\bfair keys?\b`),
	"an active verb with its subject":  regexp.MustCompile(`(?i)\b(is|are) to be\b|\bbe it\b|\bas can be\b|\bfor who\b`),
	"is notified, is returned, learns": regexp.MustCompile(`(?i)\bhears? of\b|\btells that\b`),
}

// current are the documents that speak of the throttle as it is, not of what it was.
func current(t *testing.T) []string {
	t.Helper()
	var pages []string
	for _, page := range documents(t) {
		if page != "CHANGELOG.md" && page != "docs/history.md" {
			pages = append(pages, page)
		}
	}
	return pages
}

// prose leaves code out and joins the lines of a paragraph.
func prose(text string) string {
	text = inlineCode.ReplaceAllString(fence.ReplaceAllString(text, ""), "code")
	return regexp.MustCompile(`([^\n])\n[ ]*([^\n])`).ReplaceAllString(text, "$1 $2")
}

func TestDocumentsUseTheGlossarysWords(t *testing.T) {
	t.Parallel()
	for _, page := range current(t) {
		text := prose(read(t, page))
		for better, words := range retired {
			for _, at := range words.FindAllStringIndex(text, -1) {
				t.Errorf("%s: write %q: …%s…", page, better, text[max(0, at[0]-40):min(len(text), at[1]+40)])
			}
		}
	}
}

// TestGlossaryIsShort: a page of words helps as long as one can read it.
func TestGlossaryIsShort(t *testing.T) {
	t.Parallel()
	const most = 30
	if words := strings.Count(read(t, "docs/glossary.md"), "\n| **"); words > most || words == 0 {
		t.Errorf("docs/glossary.md has %d words, want up to %d", words, most)
	}
}
