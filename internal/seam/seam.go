// Package seam is what packages throttle and inspect share that is nobody else's business.
package seam

// Key opens a throttle to package inspect: Throttle.Inside takes one. No program outside this module
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
	Key   string // as the job has it
	Name  string // of the scope key, as Redis has it
	Units int64
}
