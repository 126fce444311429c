package link

import (
	"net/url"
	"strings"
	"testing"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	base, err := url.Parse("http://alder.example/docs/start?x=1")
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ link, want string }{
		{"http://alder.example", "http://alder.example/"},
		{"HTTP://Alder.Example:80/a", "http://alder.example/a"},
		{"https://alder.example:443/a", "https://alder.example/a"},
		{"https://alder.example:80/a", "https://alder.example:80/a"},
		{"http://alder.example./a", "http://alder.example/a"},
		{"http://alder.example/a/../b/./c", "http://alder.example/b/c"},
		{"http://alder.example/../../a", "http://alder.example/a"},
		{"http://alder.example/%7euser/%41%2f", "http://alder.example/~user/A%2F"},
		{"http://alder.example/a/%2E%2e/b", "http://alder.example/b"},
		{"%2e", "http://alder.example/docs/"},
		{"http://alder.example/a?", "http://alder.example/a"},
		{"http://alder.example/a?b=%c3%a4&a=1#part", "http://alder.example/a?b=%C3%A4&a=1"},
		{"http://alder.example/ä b", "http://alder.example/%C3%A4%20b"},
		{"http://alder.example/?q=ä", "http://alder.example/?q=%C3%A4"},
		{"http://BÜCHER.example/", "http://xn--bcher-kva.example/"},
		{"http://[::FFFF:192.0.2.1]/", "http://192.0.2.1/"},
		{"http://[2001:DB8::0:1]:80/", "http://[2001:db8::1]/"},
		{"page", "http://alder.example/docs/page"},
		{"../up", "http://alder.example/up"},
		{"/root", "http://alder.example/root"},
		{"?y=2", "http://alder.example/docs/start?y=2"},
		{"#part", "http://alder.example/docs/start?x=1"},
		{"//birch.example/a", "http://birch.example/a"},
		{"  /spaces\n", "http://alder.example/spaces"},
		{"", "http://alder.example/docs/start?x=1"},
	} {
		u, err := Resolve(base, row.link)
		if err != nil {
			t.Errorf("%q: %v", row.link, err)
		} else if u.String() != row.want {
			t.Errorf("%q: got %s, want %s", row.link, u, row.want)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ link, want string }{
		{"mailto:ada@alder.example", "neither http nor https"},
		{"javascript:alert(1)", "neither http nor https"},
		{"file:///etc/passwd", "neither http nor https"},
		{"ftp://alder.example/", "neither http nor https"},
		{"/relative", "neither http nor https"},
		{"http://", "no host name"},
		{"http:///path", "no host name"},
		{"http://a..b/", "no host name"},
		{"http://user:secret@alder.example/", "user name"},
		{"http://alder.example/%zz", "no URL"},
		{"http://alder.example:port/", "no URL"},
		{"http://alder.example/" + strings.Repeat("a", MaxURL), "more than"},
		{"http://alder.example/" + strings.Repeat("ä", MaxURL/3), "more than"},
	} {
		if u, err := Resolve(nil, row.link); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%.60q: got %v, %v; want an error with %q", row.link, u, err, row.want)
		}
	}
}

func TestSiteOf(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ link, want string }{
		{"http://www.alder.example/", "alder.example"},
		{"http://docs.shop.alder.co.uk/", "alder.co.uk"},
		{"http://one.github.io/", "one.github.io"},
		{"http://github.io/", "github.io"},
		{"http://localhost:8080/", "localhost"},
		{"http://192.0.2.1:8080/", "192.0.2.1"},
		{"http://[2001:db8::1]/", "2001:db8::1"},
	} {
		u, err := Resolve(nil, row.link)
		if err != nil {
			t.Fatal(err)
		}
		if got := Site(u); got != row.want {
			t.Errorf("%s: got %s, want %s", row.link, got, row.want)
		}
	}
}

// A canonical URL is its own canonical form, and stays in the form of a web page.
func FuzzResolve(f *testing.F) {
	for _, link := range []string{"http://a.example/%2e%2e/%zz?%", "//b.example:80#x", "../a b",
		"http://[::1]:8080/", "HTTP://Ä.example", "//Ä..", "//ä。", "//a..", "//127.0.0.1.."} {
		f.Add(link)
	}
	base := &url.URL{Scheme: "http", Host: "alder.example", Path: "/a/b"}
	f.Fuzz(func(t *testing.T, link string) {
		u, err := Resolve(base, link)
		if err != nil {
			return
		}
		if u.Host == "" || u.User != nil || u.Fragment != "" || !strings.HasPrefix(u.EscapedPath(), "/") ||
			len(u.String()) > MaxURL {
			t.Fatalf("%q: got %q", link, u)
		}
		again, err := Resolve(nil, u.String())
		if err != nil || again.String() != u.String() {
			t.Fatalf("%q: got %q, and from that %v, %v", link, u, again, err)
		}
	})
}
