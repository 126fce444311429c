package try

import (
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// columns is in how many parts a chart divides the time.
const columns = 320

// Result is what the page shows.
type Result struct {
	Jobs   int      `json:"jobs"`
	Span   float64  `json:"span"`  // the seconds that the charts show, from the beginning
	From   float64  `json:"from"`  // when the incident begins, in seconds
	Until  float64  `json:"until"` // when it ends; 0: there is none
	Shaped Side     `json:"shaped"`
	Recipe Side     `json:"recipe"`
	Charts []Chart  `json:"charts"` // of each limit but hours
	Notes  []string `json:"notes"`  // what was cut or left out, in sentences
}

// Chart is what counts under one limit over time: of each column the most, under the fullest key of the scope.
type Chart struct {
	Scope  string  `json:"scope"`
	Limit  string  `json:"limit"`
	Units  []int64 `json:"units"` // the limit's own
	Shaped []int64 `json:"shaped"`
	Recipe []int64 `json:"recipe"`
}

// Play plays a backlog by this library and by asynq's recipe. It takes about a second at most in a browser, and the
// same Input has the same Result. The error is a *FieldError.
func Play(in Input) (*Result, error) {
	p, err := planOf(in)
	if err != nil {
		return nil, err
	}
	shaped, err := p.shape()
	if err != nil {
		return nil, err
	}
	recipe := p.recipe()
	span := max(shaped.last(), recipe.last(), p.closed.until) + time.Second
	result := &Result{
		Jobs: len(p.jobs), Span: span.Seconds(),
		From: p.closed.from.Seconds(), Until: p.closed.until.Seconds(),
		Shaped: p.side(shaped), Recipe: p.side(recipe), Charts: []Chart{},
	}
	for _, scope := range p.scopes {
		for _, limit := range scope.Limits {
			p.noteLimit(limit)
			if limit.Hours != "" || limit.Units == throttle.Unlimited {
				continue
			}
			c := Chart{Scope: scope.Name, Limit: limit.String(), Units: p.unitsOf(limit, span)}
			c.Shaped = p.draw(scope.Name, limit, shaped, span, &result.Shaped.Fullest)
			c.Recipe = p.draw(scope.Name, limit, recipe, span, &result.Recipe.Fullest)
			result.Charts = append(result.Charts, c)
		}
	}
	result.Notes = p.notes
	return result, nil
}

// noteLimit says which limits the recipe's limiter does not know.
func (p *plan) noteLimit(limit throttle.Limit) {
	if !isWindow(limit) && limit.Units != throttle.Unlimited || limit.Hours != "" {
		p.note("The recipe's side does not obey %s: redis_rate has no such limit.", limit)
	}
}

// columnOf returns the column of an instant.
func columnOf(at, span time.Duration) int {
	return min(int(float64(at)/float64(span)*columns), columns-1)
}

// unitsOf returns the units of a limit at the end of each column: those of a ramp grow.
func (p *plan) unitsOf(limit throttle.Limit, span time.Duration) []int64 {
	units := make([]int64, columns)
	for i := range units {
		units[i] = limit.UnitsAt(p.begins.Add(time.Duration(float64(span) * float64(i+1) / columns)))
	}
	return units
}

// draw returns the most units of the fullest key in each column, and raises the fullest part of the limit.
func (p *plan) draw(scope string, limit throttle.Limit, of played, span time.Duration, fullest *float64) []int64 {
	most := make([]int64, columns)
	for _, own := range p.byKey(scope, of.starts) {
		units, column := int64(0), 0
		for _, l := range p.levels(limit, own) {
			if l.at >= span {
				break
			}
			for to := columnOf(l.at, span); column < to; {
				column++
				most[column] = max(most[column], units)
			}
			units = l.units
			most[column] = max(most[column], units)
			if of := limit.UnitsAt(p.begins.Add(l.at)); of > 0 {
				*fullest = max(*fullest, float64(units)/float64(of))
			}
		}
		for column++; column < columns; column++ {
			most[column] = max(most[column], units)
		}
	}
	return most
}
