package provider

import "time"

// Limits is how much of a model may be used in any window.
type Limits struct {
	Requests int64
	Tokens   int64
}

// part returns a part of limits, at least one unit of each.
func (l Limits) part(of float64) Limits {
	return Limits{Requests: max(1, int64(of*float64(l.Requests))), Tokens: max(1, int64(of*float64(l.Tokens)))}
}

// Incident is a time in which a provider serves only a part of its limits, and says so in
// its headers. The zero Incident is none.
type Incident struct {
	From, Until time.Duration // times after New
	Part        float64       // above 0, up to 1
}

// Limits returns what the provider serves of a model at an instant, and false for an unknown model.
func (p *Provider) Limits(model string, at time.Time) (Limits, bool) {
	m := p.models[model]
	if m == nil {
		return Limits{}, false
	}
	if since, i := at.Sub(p.began), p.options.Incident; since >= i.From && since < i.Until {
		return m.limits.part(i.Part), true
	}
	return m.limits, true
}

// Changes returns the instants at which the provider begins to serve more or less, the earliest first.
func (p *Provider) Changes() []time.Time {
	i := p.options.Incident
	if i.From >= i.Until || i.Part == 1 {
		return nil
	}
	return []time.Time{p.began.Add(i.From), p.began.Add(i.Until)}
}
