package connect

import "fmt"

// URLError says why no client can be opened for a URL. It never has a password, nor text of the URL
// that may be part of one because a character was not escaped.
type URLError struct {
	Scheme string // such as redis-cluster; empty if the package does not know it
	// Part is the invalid part of the URL: scheme, user, address, path, parameters, or one parameter by its
	// name; or go-redis, if go-redis refuses the URL.
	Part   string
	Reason string
}

func (e *URLError) Error() string {
	if e.Scheme == "" {
		return fmt.Sprintf("connect: %s: %s", e.Part, e.Reason)
	}
	return fmt.Sprintf("connect: %s URL: %s: %s", e.Scheme, e.Part, e.Reason)
}
