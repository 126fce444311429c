package link

import (
	"bytes"
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

// maxLinks is the most links of one page that are followed.
const maxLinks = 1000

// Of returns the canonical URLs that a page links to, each once, in the order of the
// links. If the page asks crawlers not to follow its links, Of returns none.
func Of(page *url.URL, body []byte) []*url.URL {
	var links []*url.URL
	seen := make(map[string]bool)
	base := page
	for tokens := html.NewTokenizer(bytes.NewReader(body)); len(links) < maxLinks; {
		switch tokens.Next() {
		case html.ErrorToken:
			return links
		case html.StartTagToken, html.SelfClosingTagToken:
		default:
			continue
		}
		token := tokens.Token()
		switch token.DataAtom {
		case atom.Base:
			if to, err := Resolve(page, attribute(token, "href")); err == nil {
				base = to
			}
		case atom.Meta:
			if strings.EqualFold(attribute(token, "name"), "robots") && says(attribute(token, "content"), "nofollow", "none") {
				return nil
			}
		case atom.A, atom.Area:
			to, err := Resolve(base, attribute(token, "href"))
			if err == nil && !seen[to.String()] && !says(attribute(token, "rel"), "nofollow") {
				seen[to.String()] = true
				links = append(links, to)
			}
		}
	}
	return links
}

func attribute(token html.Token, name string) string {
	for _, a := range token.Attr {
		if a.Key == name {
			return a.Val
		}
	}
	return ""
}

// says reports whether one of the words is in a list, whose words are separated by commas or blanks.
func says(list string, words ...string) bool {
	for part := range strings.FieldsFuncSeq(list, func(r rune) bool { return r == ',' || r == ' ' }) {
		for _, word := range words {
			if strings.EqualFold(part, word) {
				return true
			}
		}
	}
	return false
}
