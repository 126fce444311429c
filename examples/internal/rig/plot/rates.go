package plot

import (
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Pause is a time in which nothing may start.
type Pause struct{ From, Until float64 }

// Rates shows the units of each second, and the limits: a line for each limit of up to a second, a dashed line for the
// average that a longer limit allows, and none for a quota or hours. Pauses are shaded.
type Rates struct {
	Title, Unit string
	Moments     []Moment
	Limits      []throttle.Limit
	Growing     []Moment // a limit that grows, in units per second; then Limits are left out
	Pauses      []Pause
}

func (r Rates) draw(end float64) (*plot.Plot, error) {
	p := newPlot(r.Title, r.Unit, end)
	p.Legend.Top, p.Legend.Left = true, false
	bins, top := r.bins(end)
	var lines []*plotter.Line
	add := func(name string, line *plotter.Line, highest float64) {
		lines = append(lines, line)
		p.Legend.Add(name, line)
		top = max(top, highest)
	}
	if n := len(r.Growing); n > 0 {
		add("limit, as it grows", r.growing(), r.Growing[n-1].Units)
	} else {
		for _, limit := range r.Limits {
			if limit.Units != throttle.Unlimited && limit.Window > 0 {
				line, perSecond := limitLine(limit, end)
				add(limit.String(), line, perSecond)
			}
		}
	}
	// The legend takes the room above the highest line.
	p.Y.Min, p.Y.Max = 0, top*(1.12+0.19*float64(len(lines)))
	if err := shade(p, r.Pauses, end); err != nil {
		return nil, err
	}
	p.Add(&plotter.Histogram{Bins: bins, Width: 1, FillColor: barColor,
		LineStyle: draw.LineStyle{Color: startColor, Width: vg.Points(0.5)}})
	for _, line := range lines {
		p.Add(line)
	}
	return p, nil
}

// shade shades pauses from the bottom of a plot to its top.
func shade(p *plot.Plot, pauses []Pause, end float64) error {
	for _, one := range pauses {
		until := min(one.Until, end)
		shade, err := plotter.NewPolygon(
			plotter.XYs{{X: one.From}, {X: until}, {X: until, Y: p.Y.Max}, {X: one.From, Y: p.Y.Max}})
		if err != nil {
			return err
		}
		shade.Color, shade.Width = pauseColor, 0
		p.Add(shade)
	}
	return nil
}

// bins returns the units of each second, and the units of the fullest second, at least 1.
func (r Rates) bins(end float64) (bins []plotter.HistogramBin, top float64) {
	bins, top = make([]plotter.HistogramBin, int(end)), 1
	for i := range bins {
		bins[i].Min, bins[i].Max = float64(i), float64(i+1)
	}
	for _, one := range r.Moments {
		if i := int(one.At); i >= 0 && i < len(bins) {
			bins[i].Weight += one.Units
			top = max(top, bins[i].Weight)
		}
	}
	return bins, top
}

func (r Rates) growing() *plotter.Line {
	points := make(plotter.XYs, len(r.Growing))
	for i, one := range r.Growing {
		points[i] = plotter.XY{X: one.At, Y: one.Units}
	}
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: limitColor, Width: vg.Points(1.4)}}
}

func limitLine(limit throttle.Limit, end float64) (*plotter.Line, float64) {
	perSecond := float64(limit.Units) / limit.Window.Seconds()
	line := &plotter.Line{XYs: plotter.XYs{{X: 0, Y: perSecond}, {X: end, Y: perSecond}}}
	line.Color, line.Width = limitColor, vg.Points(1.4)
	if limit.Window > time.Second {
		line.Width = vg.Points(1)
		line.Dashes = dashes
	}
	return line, perSecond
}
