// Package plot draws the runs of the examples: how many jobs arrived and started, and how many
// units started in each second, against the limits. Instants are in seconds from the beginning.
package plot

import (
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The sizes of a picture, which has rows of two plots.
const (
	rowWidth  = 11 * vg.Inch
	rowHeight = 2.1 * vg.Inch
	dpi       = 110
)

var (
	arrivalColor = color.RGBA{R: 0x2b, G: 0x6c, B: 0xb0, A: 0xff}
	startColor   = color.RGBA{R: 0x2f, G: 0x85, B: 0x5a, A: 0xff}
	barColor     = color.RGBA{R: 0x9a, G: 0xd0, B: 0xb5, A: 0xff}
	limitColor   = color.RGBA{R: 0xc0, G: 0x39, B: 0x2b, A: 0xff}
	pauseColor   = color.RGBA{R: 0xf3, G: 0xd9, B: 0xb1, A: 0xff}
	gridColor    = color.Gray{Y: 0xe4}

	dashes = []vg.Length{vg.Points(5), vg.Points(3)}
)

// Graph is one plot in a row of a picture: a Flow, Rates or Days.
type Graph interface {
	draw(end float64) (*plot.Plot, error)
}

// Write draws rows of graphs into a file, from the beginning to an end. The extension of path says
// whether the file is a PNG or an SVG.
func Write(path string, rows [][]Graph, end float64) error {
	plots := make([][]*plot.Plot, len(rows))
	for i, row := range rows {
		for _, graph := range row {
			p, err := graph.draw(end)
			if err != nil {
				return fmt.Errorf("plot: %w", err)
			}
			plots[i] = append(plots[i], p)
		}
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	defer func() { _ = file.Close() }() // closes after an error; without one, the Close below comes first
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
	drawRows(draw.New(canvas), plots)
	if _, err := canvas.WriteTo(file); err != nil {
		return fmt.Errorf("plot: %w", err)
	}
	return file.Close()
}

func drawRows(canvas draw.Canvas, rows [][]*plot.Plot) {
	tiles := draw.Tiles{Rows: len(rows), Cols: 2, PadX: 0.3 * vg.Inch, PadY: 0.15 * vg.Inch,
		PadTop: 0.1 * vg.Inch, PadBottom: 0.1 * vg.Inch, PadLeft: 0.1 * vg.Inch, PadRight: 0.2 * vg.Inch}
	canvas.SetColor(color.White) // so that the picture is readable on a dark page too
	canvas.Fill(canvas.Path())
	canvases := plot.Align(rows, tiles, canvas)
	for i := range rows {
		for j := range rows[i] {
			rows[i][j].Draw(canvases[i][j])
		}
	}
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
