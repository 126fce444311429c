package main

import (
	"fmt"
	"image/color"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The picture has a row for all mails and one for each tenant, up to maxRows
// in all: on the left what arrived and what started, on the right how much
// started in each second against the limits.
const (
	maxRows   = 9
	rowWidth  = 11 * vg.Inch
	rowHeight = 2.3 * vg.Inch
	dpi       = 110
)

var (
	arrivalColor = color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}
	startColor   = color.RGBA{R: 0x2f, G: 0x85, B: 0x5a, A: 0xff}
	barColor     = color.RGBA{R: 0x9a, G: 0xd0, B: 0xb5, A: 0xff}
	limitColor   = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	gridColor    = color.Gray{Y: 0xe4}

	dashes = []vg.Length{vg.Points(5), vg.Points(3)}
)

// moment is some units at an instant, in seconds from the beginning.
type moment struct {
	at    float64
	units int64
}

// row is what one row of the picture shows.
type row struct {
	title     string
	limits    []throttle.Limit
	arrivals  []moment    // in order
	starts    []moment    // in order
	firstCome []moment    // the starts first come, first served, in order; empty if not known
	warmup    plotter.XYs // limit that grows, in units per second; then the limits are left out
}

// writePlot draws the run into a file, as PNG or SVG by its name.
func writePlot(path string, r result) error {
	rows, err := plotRows(r)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	defer func() { _ = file.Close() }() // again after an error; the one below counts
	height := vg.Length(len(rows)) * rowHeight
	var canvas interface {
		vg.CanvasSizer
		io.WriterTo
	}
	if strings.EqualFold(filepath.Ext(path), ".svg") {
		canvas = vgsvg.New(rowWidth, height)
	} else {
		canvas = vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(rowWidth, height), vgimg.UseDPI(dpi))}
	}
	drawRows(draw.New(canvas), rows)
	if _, err := canvas.WriteTo(file); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return file.Close()
}

func drawRows(canvas draw.Canvas, rows [][]*plot.Plot) {
	tiles := draw.Tiles{Rows: len(rows), Cols: 2, PadX: 0.3 * vg.Inch, PadY: 0.15 * vg.Inch,
		PadTop: 0.1 * vg.Inch, PadBottom: 0.1 * vg.Inch, PadLeft: 0.1 * vg.Inch, PadRight: 0.2 * vg.Inch}
	canvases := plot.Align(rows, tiles, canvas)
	for i := range rows {
		for j := range rows[i] {
			rows[i][j].Draw(canvases[i][j])
		}
	}
}

func plotRows(r result) ([][]*plot.Plot, error) {
	var plots [][]*plot.Plot
	end := 1.0
	for _, starts := range [][]grant{r.granted, r.firstCome} {
		if n := len(starts); n > 0 {
			end = max(end, math.Ceil(r.since(starts[n-1].start)+0.001))
		}
	}
	for _, one := range rowsOf(r) {
		flow, err := flowPlot(one, end)
		if err != nil {
			return nil, err
		}
		plots = append(plots, []*plot.Plot{flow, ratePlot(one, end)})
	}
	return plots, nil
}

// rowsOf gathers the rows: all mails, then the tenants by name.
func rowsOf(r result) []row {
	all := row{title: "all tenants", limits: limitsOf(r.law.scopes, throttle.Global)}
	tenants := make(map[string]*row)
	for _, m := range r.campaign.mails {
		if tenants[m.tenant] == nil {
			tenants[m.tenant] = &row{title: m.tenant, limits: limitsOf(r.law.scopes, scopeTenant), warmup: warmupLine(r, m.tenant)}
		}
		if arrived := r.outcomes[m.id].arrived; !arrived.IsZero() {
			one := moment{at: max(0, r.since(arrived)), units: m.units()}
			all.arrivals = append(all.arrivals, one)
			tenants[m.tenant].arrivals = append(tenants[m.tenant].arrivals, one)
		}
	}
	for _, g := range r.granted {
		one := moment{at: r.since(g.start), units: g.mail.units()}
		all.starts = append(all.starts, one)
		tenants[g.mail.tenant].starts = append(tenants[g.mail.tenant].starts, one)
	}
	for _, g := range r.firstCome {
		one := moment{at: r.since(g.start), units: g.mail.units()}
		tenants[g.mail.tenant].firstCome = append(tenants[g.mail.tenant].firstCome, one)
	}
	rows := []row{all}
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		if len(rows) == maxRows {
			break
		}
		rows = append(rows, *tenants[name])
	}
	return rows
}

func limitsOf(scopes []throttle.Scope, name string) []throttle.Limit {
	for _, scope := range scopes {
		if scope.Name == name {
			return scope.Limits
		}
	}
	return nil
}

// warmupLine is a tenant's limit as it grows, up to where it is that of all.
func warmupLine(r result, tenant string) plotter.XYs {
	var line plotter.XYs
	level := 0.0
	for _, c := range r.law.changes {
		if c.scope != scopeTenant || c.key != tenant {
			continue
		}
		at := max(0, r.since(c.at))
		if len(line) > 0 {
			line = append(line, plotter.XY{X: at, Y: level})
		}
		if len(c.limits) == 0 {
			return line
		}
		level = float64(c.limits[0].Units) / c.limits[0].Window.Seconds()
		line = append(line, plotter.XY{X: at, Y: level})
	}
	if len(line) > 0 {
		line = append(line, plotter.XY{X: max(0, r.since(r.end())), Y: level})
	}
	return line
}

// flowPlot shows the units that have arrived and started so far, and dashed those
// that would have, first come, first served.
func flowPlot(r row, end float64) (*plot.Plot, error) {
	p := newPlot(r.title+": units arrived and started", end)
	p.Legend.Top, p.Legend.Left = false, false
	flows := []flow{
		{"arrived", r.arrivals, draw.LineStyle{Color: arrivalColor, Width: vg.Points(1.6)}},
		{"started", r.starts, draw.LineStyle{Color: startColor, Width: vg.Points(1.6)}},
	}
	if len(r.firstCome) > 0 {
		flows = append(flows, flow{"first come, first served", r.firstCome, draw.LineStyle{Color: startColor, Width: vg.Points(1), Dashes: dashes}})
	}
	for _, f := range flows {
		steps, err := plotter.NewLine(cumulative(f.moments, end))
		if err != nil {
			return nil, err
		}
		steps.StepStyle, steps.LineStyle = plotter.PostStep, f.style
		p.Add(steps)
		p.Legend.Add(f.name, steps)
	}
	p.Y.Min = 0
	return p, nil
}

// flow is one line of a flowPlot.
type flow struct {
	name    string
	moments []moment
	style   draw.LineStyle
}

// cumulative sums the moments up, from zero to the end of the picture.
func cumulative(moments []moment, end float64) plotter.XYs {
	points := plotter.XYs{{X: 0, Y: 0}}
	var sum int64
	for _, one := range moments {
		sum += one.units
		points = append(points, plotter.XY{X: min(one.at, end), Y: float64(sum)})
	}
	return append(points, plotter.XY{X: end, Y: float64(sum)})
}

// ratePlot shows the units started in each second, and the limits: a line for
// the limits of a second, a dashed one for the average that a longer allows.
func ratePlot(r row, end float64) *plot.Plot {
	p := newPlot(r.title+": units started per second", end)
	p.Legend.Top, p.Legend.Left = true, false
	bins := make([]plotter.HistogramBin, int(end))
	for i := range bins {
		bins[i].Min, bins[i].Max = float64(i), float64(i+1)
	}
	for _, one := range r.starts {
		if i := int(one.at); i >= 0 && i < len(bins) {
			bins[i].Weight += float64(one.units)
		}
	}
	bars := &plotter.Histogram{Bins: bins, Width: 1, FillColor: barColor, LineStyle: draw.LineStyle{Color: startColor, Width: vg.Points(0.5)}}
	p.Add(bars)
	top := 1.0
	for _, bin := range bins {
		top = max(top, bin.Weight)
	}
	limits := r.limits
	if len(r.warmup) > 0 {
		limits = nil
		line := &plotter.Line{XYs: r.warmup, LineStyle: draw.LineStyle{Color: limitColor, Width: vg.Points(1.4)}}
		p.Add(line)
		p.Legend.Add("limit, as it grows", line)
		top = max(top, r.warmup[len(r.warmup)-1].Y)
	}
	for _, limit := range limits {
		if limit.Units == throttle.Unlimited {
			continue
		}
		line, perSecond := limitLine(limit, end)
		p.Add(line)
		p.Legend.Add(limit.String(), line)
		top = max(top, perSecond)
	}
	// The room above the highest line is the legend's.
	p.Y.Min, p.Y.Max = 0, top*(1.12+0.17*float64(max(1, len(limits))))
	return p
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

func newPlot(title string, end float64) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = vg.Points(4)
	p.X.Label.Text = "seconds"
	p.X.Label.TextStyle.Font.Size = vg.Points(9)
	p.X.Min, p.X.Max = 0, end
	p.X.Tick.Marker = secondTicks(end)
	p.Y.Label.Text = "units"
	p.Y.Label.TextStyle.Font.Size = vg.Points(9)
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs = -vg.Points(6)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColor, gridColor
	p.Add(grid)
	return p
}

// secondTicks marks whole seconds, about eight of them.
func secondTicks(end float64) plot.ConstantTicks {
	step := 1
	for _, factor := range []int{2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 14400, 86400} {
		if end/float64(step) > 8 {
			step = factor
		}
	}
	var ticks plot.ConstantTicks
	for at := 0; float64(at) <= end; at += step {
		ticks = append(ticks, plot.Tick{Value: float64(at), Label: strconv.Itoa(at)})
	}
	return ticks
}
