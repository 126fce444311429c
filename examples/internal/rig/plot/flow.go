package plot

import (
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Moment is some units at an instant.
type Moment struct{ At, Units float64 }

// Flow shows the units that have arrived and started so far and, dashed, the units that would have started under
// another rule. Each list is in order. An empty list has no line, except for the first two.
type Flow struct {
	Title            string
	Arrived, Started []Moment
	Otherwise        []Moment
	Rule             string // the name of the other rule
	// Began is when the run began, in a time zone whose clock is shown; zero for seconds.
	Began time.Time
}

func (f Flow) draw(end float64) (*plot.Plot, error) {
	p := newPlot(f.Title, "units", end)
	p.Legend.Top, p.Legend.Left = false, false
	if !f.Began.IsZero() {
		byClock(p, f.Began, end)
	}
	lines := []line{
		{"arrived", f.Arrived, draw.LineStyle{Color: arrivalColor, Width: vg.Points(1.6)}},
		{"started", f.Started, draw.LineStyle{Color: startColor, Width: vg.Points(1.6)}},
	}
	if len(f.Otherwise) > 0 {
		lines = append(lines, line{f.Rule, f.Otherwise,
			draw.LineStyle{Color: startColor, Width: vg.Points(1), Dashes: dashes}})
	}
	for _, l := range lines {
		steps, err := plotter.NewLine(cumulative(l.moments, end))
		if err != nil {
			return nil, err
		}
		steps.StepStyle, steps.LineStyle = plotter.PostStep, l.style
		p.Add(steps)
		p.Legend.Add(l.name, steps)
	}
	p.Y.Min = 0
	return p, nil
}

type line struct {
	name    string
	moments []Moment
	style   draw.LineStyle
}

// cumulative sums the moments up, from zero to the end of the picture.
func cumulative(moments []Moment, end float64) plotter.XYs {
	points := plotter.XYs{{X: 0, Y: 0}}
	var sum float64
	for _, one := range moments {
		sum += one.Units
		points = append(points, plotter.XY{X: min(one.At, end), Y: sum})
	}
	return append(points, plotter.XY{X: end, Y: sum})
}
