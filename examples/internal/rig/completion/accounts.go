package completion

// charges is how many tokens a prompt was charged, and how many it used according to the record.
type charges struct {
	settled   int64 // tokens of the charges that were settled
	estimated int64 // tokens of the charges that stay as estimated
	recorded  int64
}

// mischarged counts the prompts whose charge differs from their use in the record. A charge
// that stays as estimated counts as right if its attempt used at most the estimate.
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

// budgetsRight reports whether the used units of the budgets have grown by the charges. A
// charge whose settling failed may be settled all the same, if only the answer was lost. With a
// Redis outside the process, other programs may use the budgets too: then budgetsRight checks nothing.
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
