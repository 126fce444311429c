// Package link reads the links of pages, and writes each URL in one way.
package link

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// MaxURL is the longest URL that is followed. Longer ones are mostly made by
// pages that link to themselves with more and more in the query.
const MaxURL = 2048

// errNotWeb says that a link does not lead to a page of the web.
var errNotWeb = errors.New("is neither http nor https")

// Resolve reads a link of a page and returns its canonical URL: of all spellings of one address, the one that
// identifies the page. Base is nil for a URL that stands by itself.
func Resolve(base *url.URL, link string) (*url.URL, error) {
	link = strings.TrimSpace(link)
	if len(link) > MaxURL {
		return nil, fmt.Errorf("has more than %d bytes", MaxURL)
	}
	u, err := url.Parse(link)
	if err != nil {
		return nil, errors.New("is no URL")
	}
	if base == nil {
		base = new(url.URL)
	}
	if err := canonicalPath(u); err != nil { // first, since an escape may be of a dot
		return nil, err
	}
	u = base.ResolveReference(u) // removes dot segments, too
	if u.Path == "" {
		u.Path = "/"
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errNotWeb
	}
	if u.User != nil {
		return nil, errors.New("holds a user name")
	}
	if err := canonicalHost(u); err != nil {
		return nil, err
	}
	u.RawQuery, u.ForceQuery = CanonicalEscapes(u.RawQuery, notInURL), false
	u.Fragment, u.RawFragment = "", ""
	if len(u.String()) > MaxURL {
		return nil, fmt.Errorf("has more than %d bytes", MaxURL)
	}
	return u, nil
}

// canonicalHost writes the host in lower case ASCII, without a final dot and without the default port of its scheme.
func canonicalHost(u *url.URL) error {
	name, port := u.Hostname(), u.Port()
	if addr, err := netip.ParseAddr(strings.TrimSuffix(name, ".")); err == nil {
		name = addr.Unmap().WithZone("").String()
	} else if name, err = asciiName(name); err != nil {
		return err
	}
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port != "" && port != defaultPort(u.Scheme) {
		name += ":" + port
	}
	u.Host = name
	return nil
}

// asciiName returns a host name in the form in which it is looked up, without a final dot.
func asciiName(name string) (string, error) {
	ascii, err := idna.Lookup.ToASCII(name)
	ascii = strings.TrimSuffix(ascii, ".")
	if err == nil && ascii != "" && !strings.Contains("."+ascii+".", "..") {
		if again, err := idna.Lookup.ToASCII(ascii); err == nil && again == ascii { // not so of some names that are none
			return ascii, nil
		}
	}
	return "", errors.New("has no host name")
}

func defaultPort(scheme string) string {
	if scheme == "https" {
		return "443"
	}
	return "80"
}

func canonicalPath(u *url.URL) error {
	raw := CanonicalEscapes(u.EscapedPath(), notInURL)
	path, err := url.PathUnescape(raw)
	if err != nil {
		return errors.New("has a path with a broken escape")
	}
	u.Path, u.RawPath = path, raw
	return nil
}

const upperHex = "0123456789ABCDEF"

// notInURL reports whether a byte must be escaped in a URL.
func notInURL(c byte) bool {
	return c <= ' ' || c >= 0x7f || c == '"' || c == '<' || c == '>'
}

// CanonicalEscapes writes the same bytes in one way: a byte that needs no escape has none, and an escape is in upper
// case (RFC 3986, 6.2.2). A percent sign that begins no escape stays as it is.
func CanonicalEscapes(text string, needed func(byte) bool) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '%' && i+2 < len(text) && isHex(text[i+1]) && isHex(text[i+2]):
			c = unhex(text[i+1])<<4 | unhex(text[i+2])
			if unreserved(c) {
				b.WriteByte(c)
			} else {
				b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
			}
			i += 2
		case needed(c):
			b.Write([]byte{'%', upperHex[c>>4], upperHex[c&15]})
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

func isHex(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func unhex(c byte) byte {
	switch {
	case c >= 'a':
		return c - 'a' + 10
	case c >= 'A':
		return c - 'A' + 10
	}
	return c - '0'
}

// Site returns the registrable domain of a host, which belongs to one owner. For an address it returns the address.
func Site(u *url.URL) string {
	name := u.Hostname()
	if _, err := netip.ParseAddr(name); err == nil {
		return name
	}
	if site, err := publicsuffix.EffectiveTLDPlusOne(name); err == nil {
		return site
	}
	return name
}
