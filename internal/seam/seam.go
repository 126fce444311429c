// Package seam has the types that packages throttle, inspect and worker share, and no program outside this module.
package seam

// Key opens a throttle to packages inspect and worker: Throttle.Inside takes one. No program outside this module
// can make one.
type Key struct{}

// Order is what a checked job takes, and where it waits.
type Order struct {
	Flow    string // the encoded key of the fair scope, empty for none
	Lane    string
	Charges []Charge // by the names of the scope keys
}

// Charge is what a job takes of one scope key.
type Charge struct {
	Scope string
	Key   string // the job's own text
	Name  string // the scope key's name in Redis
	Units int64
}
