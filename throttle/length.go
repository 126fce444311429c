package throttle

import "fmt"

// Length is how long a line is, or may get.
type Length struct {
	// Jobs is the number of its jobs.
	Jobs int64 `json:"jobs,omitempty"`
	// Units is the sum of its jobs' costs in the scope.
	Units int64 `json:"units,omitempty"`
}

// String writes a length as "3 jobs", "1 unit" or "3 jobs, 5 units".
func (l Length) String() string {
	switch {
	case l.Units == 0:
		return many(l.Jobs, "job")
	case l.Jobs == 0:
		return many(l.Units, "unit")
	}
	return many(l.Jobs, "job") + ", " + many(l.Units, "unit")
}

// many writes a count with its noun, given in the singular.
func many(n int64, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
