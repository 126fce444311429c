package link

import (
	"net/url"
	"strings"
	"testing"
)

func TestLinksOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ name, body, want string }{
		{"none", "Text", ""},
		{"plain", `<a href="/a">A</a> <A HREF='b'>B</A><area href=c>`,
			"http://alder.example/a http://alder.example/dir/b http://alder.example/dir/c"},
		{"each once", `<a href="/a">1</a><a href="/a#x">2</a><a href="./../a">3</a>`, "http://alder.example/a"},
		{"entities", `<a href="/a?b=1&amp;c=2">`, "http://alder.example/a?b=1&c=2"},
		{"base", `<base href="/other/"><a href="a">`, "http://alder.example/other/a"},
		{"no pages", `<a href="mailto:a@b"><a href="javascript:x()"><a name="x"><img src="/i"><link href="/l">`,
			"http://alder.example/dir/page"},
		{"nofollow", `<a rel="external NoFollow" href="/a"><a rel="next" href="/b">`, "http://alder.example/b"},
		{"none of them", `<meta name=ROBOTS content="noindex, nofollow"><a href="/a">`, ""},
		{"in comments and scripts", `<!-- <a href="/a"> --><script>"<a href='/b'>"</script>`, ""},
		{"cut", `<a href="/a">A</a><a href="/b`, "http://alder.example/a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, u := range Of(&url.URL{Scheme: "http", Host: "alder.example", Path: "/dir/page"}, []byte(row.body)) {
				got = append(got, u.String())
			}
			if strings.Join(got, " ") != row.want {
				t.Errorf("got %q, want %q", got, row.want)
			}
		})
	}
}

func FuzzLinks(f *testing.F) {
	f.Add(`<base href="//x"><a href="?"><meta name=robots>`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, u := range Of(&url.URL{Scheme: "http", Host: "alder.example", Path: "/"}, []byte(body)) {
			if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				t.Errorf("got %q", u)
			}
		}
	})
}
