package main

import (
	"cmp"
	"fmt"
	"image/color"
	"io"
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

// The picture has a row for all hosts and one for each, up to maxRows in all: on
// the left the requests in each second, on the right the kilobytes, both against
// the limits; shaded are the times for which a host asked to be left alone.
const (
	maxRows   = 12
	rowWidth  = 11 * vg.Inch
	rowHeight = 1.9 * vg.Inch
	dpi       = 110
)

var (
	edgeColor  = color.RGBA{R: 0x2f, G: 0x85, B: 0x5a, A: 0xff}
	barColor   = color.RGBA{R: 0x9a, G: 0xd0, B: 0xb5, A: 0xff}
	limitColor = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	pauseColor = color.RGBA{R: 0xf3, G: 0xd9, B: 0xb1, A: 0xff}
	gridColor  = color.Gray{Y: 0xe4}

	dashes = []vg.Length{vg.Points(5), vg.Points(3)}
)

// moment is some units at an instant, in seconds from the beginning.
type moment struct{ at, units float64 }

// pause is from when to when a host asked to be left alone, in seconds.
type pause struct{ from, until float64 }

// row is what one row of the picture shows.
type row struct {
	title               string
	requests, kilobytes []moment
	pauses              []pause
	requestLimits       []throttle.Limit
	kilobyteLimits      []throttle.Limit
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
	end := 1.0
	for _, a := range r.accesses {
		end = max(end, math.Ceil(r.since(a.at)+0.001))
	}
	var plots [][]*plot.Plot
	for _, one := range rowsOf(r) {
		requests, err := ratePlot(one.title+": requests per second", unitRequests, one.requests, one.requestLimits, one.pauses, end)
		if err != nil {
			return nil, err
		}
		kilobytes, err := ratePlot(one.title+": kilobytes per second", unitKilobytes, one.kilobytes, one.kilobyteLimits, one.pauses, end)
		if err != nil {
			return nil, err
		}
		plots = append(plots, []*plot.Plot{requests, kilobytes})
	}
	return plots, nil
}

// rowsOf gathers the rows: all hosts, then those that were asked most, by name.
func rowsOf(r result) []row {
	all := row{title: "all hosts", requestLimits: limitsOf(r.options.requests, throttle.Global), kilobyteLimits: limitsOf(r.options.kilobytes, throttle.Global)}
	hosts := make(map[string]*row)
	for _, a := range r.accesses {
		one := hosts[a.host]
		if one == nil {
			one = &row{title: a.host, requestLimits: limitsOf(r.options.requests, scopeHost), kilobyteLimits: limitsOf(r.options.kilobytes, scopeHost)}
			if delay := r.delays[a.host]; delay > 0 {
				one.requestLimits = withDelay(one.requestLimits, delay)
			}
			hosts[a.host] = one
		}
		request, kb := moment{r.since(a.at), 1}, moment{r.since(a.at), float64(a.bytes) / kilobyte}
		all.requests, all.kilobytes = append(all.requests, request), append(all.kilobytes, kb)
		one.requests, one.kilobytes = append(one.requests, request), append(one.kilobytes, kb)
		if !a.until.IsZero() {
			one.pauses = append(one.pauses, pause{from: r.since(a.end), until: r.since(a.until)})
		}
	}
	rows := make([]row, 0, len(hosts))
	for _, one := range hosts {
		rows = append(rows, *one)
	}
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(len(b.requests), len(a.requests)), strings.Compare(a.title, b.title))
	})
	rows = rows[:min(len(rows), maxRows-1)]
	slices.SortFunc(rows, func(a, b row) int { return strings.Compare(a.title, b.title) })
	return append([]row{all}, rows...)
}

// ratePlot shows the units of each second, and the limits: a line for the limits of
// up to a second, a dashed one for the average that a longer allows.
func ratePlot(title, unit string, moments []moment, limits []throttle.Limit, pauses []pause, end float64) (*plot.Plot, error) {
	p := newPlot(title, unit, end)
	p.Legend.Top, p.Legend.Left = true, false
	bins := make([]plotter.HistogramBin, int(end))
	top := 1.0
	for i := range bins {
		bins[i].Min, bins[i].Max = float64(i), float64(i+1)
	}
	for _, one := range moments {
		if i := int(one.at); i >= 0 && i < len(bins) {
			bins[i].Weight += one.units
			top = max(top, bins[i].Weight)
		}
	}
	var lines []*plotter.Line
	for _, limit := range limits {
		if limit.Units == throttle.Unlimited {
			continue
		}
		line, perSecond := limitLine(limit, end)
		lines = append(lines, line)
		p.Legend.Add(limit.String(), line)
		top = max(top, perSecond)
	}
	// The room above the highest line is the legend's.
	p.Y.Min, p.Y.Max = 0, top*(1.12+0.2*float64(len(lines)))
	for _, one := range pauses {
		shade, err := plotter.NewPolygon(plotter.XYs{{X: one.from}, {X: min(one.until, end)}, {X: min(one.until, end), Y: p.Y.Max}, {X: one.from, Y: p.Y.Max}})
		if err != nil {
			return nil, err
		}
		shade.Color, shade.Width = pauseColor, 0
		p.Add(shade)
	}
	p.Add(&plotter.Histogram{Bins: bins, Width: 1, FillColor: barColor, LineStyle: draw.LineStyle{Color: edgeColor, Width: vg.Points(0.5)}})
	for _, line := range lines {
		p.Add(line)
	}
	return p, nil
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

func newPlot(title, unit string, end float64) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = vg.Points(4)
	p.X.Label.Text = "seconds"
	p.X.Label.TextStyle.Font.Size = vg.Points(9)
	p.X.Min, p.X.Max = 0, end
	p.X.Tick.Marker = secondTicks(end)
	p.Y.Label.Text = unit
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
