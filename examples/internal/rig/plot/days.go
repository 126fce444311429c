package plot

import (
	"slices"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// Days shows a run by the clock of a time zone: the units of each hour or, with a Quota, the units so far in each of
// its periods, beside the quota. Pauses are shaded.
type Days struct {
	Title   string
	Began   time.Time // when the run began, in the zone
	Moments []Moment  // in order
	Pauses  []Pause
	Quota   throttle.Limit // zero: the units of each hour are shown; a ramp is a quota too
	Allowed []Moment       // the units of the quota, from each moment until the next, in order
	Anew    []float64      // when the quota begins anew, in order
}

func (d Days) draw(end float64) (*plot.Plot, error) {
	p := newPlot(d.Title, "units", end)
	byClock(p, d.Began, end)
	if (d.Quota == throttle.Limit{}) {
		return p, d.drawHours(p, end)
	}
	return p, d.drawQuota(p, end)
}

// drawHours draws a bar for each hour.
func (d Days) drawHours(p *plot.Plot, end float64) error {
	bins, top := d.hours(end)
	if err := d.prepare(p, top*1.12, end); err != nil {
		return err
	}
	p.Add(&plotter.Histogram{Bins: bins, Width: hour, FillColor: barColor,
		LineStyle: draw.LineStyle{Color: startColor, Width: vg.Points(0.5)}})
	return nil
}

// drawQuota draws the quota, and the units so far, which begin anew with each period.
func (d Days) drawQuota(p *plot.Plot, end float64) error {
	line, quota := d.soFar(end), d.allowed(end)
	top := 0.0
	for _, point := range slices.Concat(line.XYs, quota.XYs) {
		top = max(top, point.Y)
	}
	if err := d.prepare(p, top*1.31, end); err != nil { // the legend needs room above the lines
		return err
	}
	p.Add(line, quota)
	p.Legend.Top, p.Legend.Left = true, false
	p.Legend.Add(d.legend(), quota)
	return nil
}

// legend returns the text of the quota. For a ramp it names only the calendar, since the plot shows the steps.
func (d Days) legend() string {
	if d.Quota.Ramp != "" {
		return "ramp/" + d.Quota.Label()
	}
	return d.Quota.String()
}

// allowed returns the line of the quota, which goes up with each step of a ramp.
func (d Days) allowed(end float64) *plotter.Line {
	var points plotter.XYs
	for i, one := range d.Allowed {
		until := end
		if i+1 < len(d.Allowed) {
			until = d.Allowed[i+1].At
		}
		points = append(points, plotter.XY{X: one.At, Y: one.Units}, plotter.XY{X: until, Y: one.Units})
	}
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: limitColor, Width: vg.Points(1.4)}}
}

// prepare sets how high a plot is, and shades the pauses.
func (d Days) prepare(p *plot.Plot, top, end float64) error {
	p.Y.Min, p.Y.Max = 0, top
	p.Y.Tick.Marker = unitTicks(top)
	return shade(p, d.Pauses, end)
}

// hour is the length of time that a bar stands for, in seconds.
const hour = 3600

// hours returns a bar for each hour of the clock, and the units of the highest bar, at least 1.
func (d Days) hours(end float64) (bins []plotter.HistogramBin, top float64) {
	year, month, day := d.Began.Date()
	first := time.Date(year, month, day, d.Began.Hour(), 0, 0, 0, d.Began.Location()).Sub(d.Began).Seconds()
	for from := first; from < end; from += hour {
		bins = append(bins, plotter.HistogramBin{Min: from, Max: from + hour})
	}
	top = 1
	for _, one := range d.Moments {
		if i := int((one.At - first) / hour); i >= 0 && i < len(bins) {
			bins[i].Weight += one.Units
			top = max(top, bins[i].Weight)
		}
	}
	return bins, top
}

// soFar returns the line of the units so far in each period.
func (d Days) soFar(end float64) *plotter.Line {
	points := plotter.XYs{{X: 0, Y: 0}}
	sum, anew := 0.0, d.Anew
	for _, one := range append(d.Moments[:len(d.Moments):len(d.Moments)], Moment{At: end}) {
		for len(anew) > 0 && anew[0] <= one.At {
			points = append(points, plotter.XY{X: anew[0], Y: sum}, plotter.XY{X: anew[0], Y: 0})
			sum, anew = 0, anew[1:]
		}
		points = append(points, plotter.XY{X: one.At, Y: sum}, plotter.XY{X: one.At, Y: sum + one.Units})
		sum += one.Units
	}
	return &plotter.Line{XYs: points, LineStyle: draw.LineStyle{Color: startColor, Width: vg.Points(1.6)}}
}

// unitTicks marks whole units, about four of them.
func unitTicks(top float64) plot.ConstantTicks {
	step := 1
	for _, units := range []int{2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 100000, 1000000} {
		if top/float64(step) > 4 {
			step = units
		}
	}
	var ticks plot.ConstantTicks
	for units := 0; float64(units) <= top; units += step {
		ticks = append(ticks, plot.Tick{Value: float64(units), Label: strconv.Itoa(units)})
	}
	return ticks
}

// byClock labels the time axis of a plot with the clock of a zone.
func byClock(p *plot.Plot, began time.Time, end float64) {
	p.X.Label.Text = began.Location().String()
	p.X.Tick.Marker = clockTicks(began, end)
}

// clockTicks marks hours of the clock or midnights, about six of them.
func clockTicks(began time.Time, end float64) plot.ConstantTicks {
	step, layout := 1, "Mon 15:04"
	for _, hours := range []int{2, 3, 6, 12, 24, 48, 168, 672} {
		if end/float64(step*hour) > 6 {
			step = hours
		}
	}
	if step >= 24 {
		layout = "Mon 2 Jan"
	}
	var ticks plot.ConstantTicks
	year, month, day := began.Date()
	for hours := 0; ; hours += step {
		at := time.Date(year, month, day, hours, 0, 0, 0, began.Location())
		switch x := at.Sub(began).Seconds(); {
		case x > end:
			return ticks
		case x >= 0:
			ticks = append(ticks, plot.Tick{Value: x, Label: at.Format(layout)})
		}
	}
}
