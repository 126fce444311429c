package connect

import "fmt"

// URLError is a URL that no client can be opened for. It never holds a password, nor
// what may be one because a character in it was not escaped.
type URLError struct {
	Scheme string // such as redis-cluster; empty if the package does not know it
	Part   string // the invalid part of the URL: scheme, user, address, path, or a parameter
	Reason string
}

func (e *URLError) Error() string {
	if e.Scheme == "" {
		return fmt.Sprintf("connect: %s: %s", e.Part, e.Reason)
	}
	return fmt.Sprintf("connect: %s URL: %s: %s", e.Scheme, e.Part, e.Reason)
}
