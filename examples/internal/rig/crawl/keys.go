package crawl

// The scopes that requests and kilobytes are counted over, besides
// throttle.Global.
const (
	ScopeHost     = "host"
	ScopeSite     = "site" // the registrable domain
	ScopeIP       = "ip"
	ScopeCustomer = "customer"
	// ScopeConnections counts the requests under way to an IP address.
	ScopeConnections = "connections"
)

// Keys is what a request is counted under in each scope.
type Keys struct{ Host, Site, IP, Customer string }

// Key returns the key in a scope; empty for the scope without keys.
func (k Keys) Key(scope string) string {
	switch scope {
	case ScopeHost:
		return k.Host
	case ScopeSite:
		return k.Site
	case ScopeIP, ScopeConnections:
		return k.IP
	case ScopeCustomer:
		return k.Customer
	}
	return ""
}
