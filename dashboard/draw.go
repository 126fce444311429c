package dashboard

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/inspect"
	"github.com/asynq-throttle/asynq-throttle/internal/view"
	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// bar shows how much of a limit is used and booked, in hundredths. It is full when all that the
// upstream serves is used and booked.
type bar struct {
	Used, Booked string
	Full         bool
	Label        string
}

// barOf draws a limit of which the upstream serves a share; 0 is all.
func barOf(used, booked, units int64, part float64) bar {
	if units == 0 {
		return bar{Used: "100", Booked: "0", Full: true, Label: "closed"}
	}
	u := min(100, float64(used)/float64(units)*100)
	b := min(100-u, float64(booked)/float64(units)*100)
	return bar{
		Used: number(u), Booked: number(b), Full: used+booked >= servedOf(units, part),
		Label: fmt.Sprintf("%d of %d used, %d booked", used, units, booked),
	}
}

// servedOf returns how many units the upstream serves, as the scripts count them: in thousandths,
// at least one unit.
func servedOf(units int64, part float64) int64 {
	if part == 0 {
		return units
	}
	return max(1, units*int64(math.Round(part*1000))/1000)
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', 1, 64) }

// spark returns the path of points in a field of 60 by 20, the last on the right. The larger of top
// and the largest point reaches the upper edge.
func spark(points []float64, top float64) string {
	if len(points) == 0 {
		return ""
	}
	for _, p := range points {
		top = max(top, p)
	}
	if top == 0 {
		top = 1
	}
	var b strings.Builder
	left := mostPoints - len(points)
	fmt.Fprintf(&b, "M%d 20", left)
	for i, p := range points {
		fmt.Fprintf(&b, "V%.1fH%d", 20-19*p/top, left+i+1)
	}
	b.WriteString("V20Z")
	return b.String()
}

// useRow is one limit of a scope key.
type useRow struct {
	view.Use
	instantNow
	Units  int64
	Bar    bar
	Counts bool   // there is a limit that counts
	Weak   bool   // the limit is not enforced
	Set    string // until when, by whom and why the limit is set at run time
}

// useRows returns a row for each limit of a scope key. The text set describes limits that are set
// at run time.
func useRows(u inspect.Usage, set string) []useRow {
	all := view.UsesOf(u)
	rows := make([]useRow, len(all))
	for i, use := range all {
		rows[i] = useRow{Use: use, instantNow: instantNow{u.Now}, Weak: u.Mode != throttle.Enforce, Set: set}
		if i < len(u.Limits) {
			rows[i].Units = u.Limits[i].Units
			rows[i].Counts = rows[i].Units != throttle.Unlimited
			rows[i].Bar = barOf(use.Used, use.Booked, rows[i].Units, use.Served)
		}
	}
	return rows
}

// chart is a history, drawn in fields of 10 by 50. It has no bars if nothing started.
type chart struct {
	Bars         []chartBar
	Width        int
	Counts       bool
	Window, Step time.Duration
	Most         int64
}

type chartBar struct {
	X         int
	Y, Height string
	Text      string
}

// barAt draws a bar in a field, whose height is a part of the highest bar's.
func barAt(field int, part float64, text string) chartBar {
	return chartBar{10 * field, number(50 - 50*part), number(50 * part), text}
}

func chartOf(h history) chart {
	c := chart{Width: 10 * len(h.bars), Counts: len(h.bars) > 0, Window: h.limit.Window, Step: h.limit.Window / mostBars}
	for _, units := range h.bars {
		c.Most = max(c.Most, units)
	}
	if c.Most == 0 {
		return c
	}
	for i, units := range h.bars {
		c.Bars = append(c.Bars, barAt(i, float64(units)/float64(c.Most), strconv.FormatInt(units, 10)))
	}
	return c
}
