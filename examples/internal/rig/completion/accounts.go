package completion

// charges is what a prompt was charged, and what it took by the record, in tokens.
type charges struct {
	settled   int64 // by the charges that were settled
	estimated int64 // by those that stay as estimated
	recorded  int64
}

// mischarged counts the prompts that were charged something else than they took: by the
// provider's record, or by what its answers have said. Of a charge that stays as estimated
// that is the most that the attempt can have taken.
func (r result) mischarged() int {
	prompts := make(map[string]charges)
	for _, g := range r.granted {
		c := prompts[g.prompt.ID]
		switch {
		case g.returned:
		case g.told:
			c.settled += g.settled
		default:
			c.estimated += g.charged
		}
		prompts[g.prompt.ID] = c
	}
	for _, one := range r.answers() {
		c := prompts[one.ID]
		c.recorded += one.Tokens()
		prompts[one.ID] = c
	}
	wrong := 0
	for _, c := range prompts {
		if c.recorded < c.settled || c.recorded > c.settled+c.estimated {
			wrong++
		}
	}
	return wrong
}

// budgetsRight reports whether the throttle's account of the budgets has grown by the charges. One
// that could not be settled may have been all the same, when only the answer was lost. With
// a Redis elsewhere others may use the budgets too.
func (r result) budgetsRight() bool {
	if !r.inside {
		return true
	}
	var least, most int64
	for _, g := range r.granted {
		switch {
		case g.returned:
		case !g.told && g.used.TotalTokens > 0:
			least += min(g.charged, g.used.TotalTokens)
			most += max(g.charged, g.used.TotalTokens)
		default:
			least += g.settled
			most += g.settled
		}
	}
	return least <= r.charged && r.charged <= most
}
