package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/asynq-throttle/asynq-throttle/throttle"
)

// The sizes of a picture, in pixels: two panels side by side, each with a plot and its margins.
const (
	panelWidth, panelHeight = 440, 270
	marginLeft, marginRight = 46, 12
	marginTop, marginBottom = 48, 40
	plotWidth               = panelWidth - marginLeft - marginRight
	plotHeight              = panelHeight - marginTop - marginBottom
)

// panel is one half of the picture: one drain.
type panel struct {
	title string
	is    outcome
	level []step // how many jobs started in the window that ends at each instant
}

// step says that the level is at a number of jobs from an instant on.
type step struct {
	at   time.Duration
	jobs int
}

// draw drains the same backlog by asynq's recipe and by the middleware. It draws how
// many jobs started in each window, and the global limit.
func (b *bench) draw(ctx context.Context) error {
	b.say("%d jobs of %d tenants under two limits, by asynq's recipe", b.jobs, drainTenants)
	recipe, err := b.recipe(ctx)
	if err != nil {
		return err
	}
	b.say("put back %.2f times per job, the fullest window %.2f of its limit; the same by the middleware",
		recipe.putBacks, recipe.worst)
	shaped, err := b.shape(ctx, asynqWorkers, limits{throttle.Per(tenantDrain, drainWindow)},
		limits{throttle.Per(globalDrain, drainWindow)}, b.jobs, drainTenants)
	if err != nil {
		return err
	}
	b.say("put back %.2f times per job, the fullest window %.2f of its limit; drawn to %s", shaped.putBacks,
		shaped.worst, b.picture)
	svg := svgOf([]panel{
		{title: "asynq's recipe with redis_rate", is: recipe, level: levels(recipe.starts)},
		{title: "asynq-throttle", is: shaped, level: levels(shaped.starts)},
	})
	return os.WriteFile(b.picture, []byte(svg), 0o644) //nolint:gosec // a picture is for everybody
}

// levels counts the starts, which are in order, in the window that ends at an instant. It returns a step
// for each instant at which this count changes.
func levels(starts []started) []step {
	type change struct {
		at time.Duration
		by int
	}
	changes := make([]change, 0, 2*len(starts))
	for _, s := range starts {
		at := s.at.Sub(starts[0].at)
		changes = append(changes, change{at, 1}, change{at + drainWindow, -1})
	}
	slices.SortFunc(changes, func(a, b change) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.by - b.by // at one instant, count a start that leaves the window before a start that enters it
	})
	all := make([]step, 0, len(changes))
	jobs := 0
	for _, c := range changes {
		jobs += c.by
		if n := len(all); n > 0 && all[n-1].at == c.at {
			all[n-1].jobs = jobs
			continue
		}
		all = append(all, step{c.at, jobs})
	}
	return all
}

// scale turns instants and jobs into pixels, the same for all panels.
type scale struct {
	end  time.Duration
	jobs int
}

func (s scale) x(at time.Duration) float64 {
	return marginLeft + plotWidth*at.Seconds()/s.end.Seconds()
}

func (s scale) y(jobs int) float64 {
	return marginTop + plotHeight*(1-float64(jobs)/float64(s.jobs))
}

func svgOf(panels []panel) string {
	s := scale{jobs: globalDrain}
	for _, p := range panels {
		s.end = max(s.end, p.level[len(p.level)-1].at)
		for _, step := range p.level {
			s.jobs = max(s.jobs, step.jobs)
		}
	}
	s.end, s.jobs = s.end.Truncate(time.Second)+time.Second, s.jobs*21/20
	var svg strings.Builder
	fmt.Fprintf(&svg,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		panelWidth*len(panels), panelHeight)
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	fmt.Fprintf(&svg, `<clipPath id="over"><rect x="0" y="0" width="%d" height="%.1f"/></clipPath>`+"\n",
		panelWidth, s.y(globalDrain))
	for i, p := range panels {
		fmt.Fprintf(&svg, `<g transform="translate(%d 0)">`+"\n", i*panelWidth)
		p.draw(&svg, s)
		svg.WriteString("</g>\n")
	}
	svg.WriteString("</svg>\n")
	return svg.String()
}

func (p panel) draw(svg *strings.Builder, s scale) {
	text := func(x, y float64, anchor, style, format string, args ...any) {
		fmt.Fprintf(svg, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style,
			fmt.Sprintf(format, args...))
	}
	area := p.area(s)
	fmt.Fprintf(svg, `<path d="%s" fill="#7ba7d7"/>`+"\n", area)
	fmt.Fprintf(svg, `<path d="%s" fill="#c0392b" clip-path="url(#over)"/>`+"\n", area)
	fmt.Fprintf(svg, `<path d="M%d %.1fH%d" stroke="#222222" stroke-width="1.5" stroke-dasharray="6 3"/>`+"\n",
		marginLeft, s.y(globalDrain), panelWidth-marginRight)
	fmt.Fprintf(svg, `<path d="M%d %dV%.1fH%d" fill="none" stroke="#888888"/>`+"\n",
		marginLeft, marginTop, s.y(0), panelWidth-marginRight)
	for at := time.Duration(0); at <= s.end; at += drainWindow {
		text(s.x(at), s.y(0)+16, "middle", `fill="#555555"`, "%.0f", at.Seconds())
	}
	for jobs := 0; jobs <= s.jobs; jobs += globalDrain / 2 {
		text(marginLeft-6, s.y(jobs)+4, "end", `fill="#555555"`, "%d", jobs)
	}
	text(marginLeft+plotWidth/2, panelHeight-6, "middle", `fill="#555555"`,
		"seconds; jobs started in the last %.0f s, dashed their limit", drainWindow.Seconds())
	text(marginLeft, 18, "start", `font-weight="bold" font-size="14"`, "%s", p.title)
	text(marginLeft, 36, "start", ``, "put back %s times per job; fullest window %.0f %% of its limit",
		figure(p.is.putBacks), 100*p.is.worst)
}

// area returns the outline of the area below the level. If the level changes several times within half a pixel,
// the outline has the highest of these levels.
func (p panel) area(s scale) string {
	var path strings.Builder
	fmt.Fprintf(&path, "M%.1f %.1f", s.x(0), s.y(0))
	last, end := 0, p.level[len(p.level)-1].at
	for i := 0; i < len(p.level); {
		at, most := p.level[i].at, p.level[i].jobs
		for i++; i < len(p.level) && s.x(p.level[i].at)-s.x(at) < 0.5; i++ {
			most = max(most, p.level[i].jobs)
		}
		if most != last {
			fmt.Fprintf(&path, "H%.1fV%.1f", s.x(at), s.y(most))
		}
		last = most
	}
	fmt.Fprintf(&path, "H%.1fV%.1fZ", s.x(end), s.y(0))
	return path.String()
}

// figure formats a number with two digits.
func figure(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.1f", f)
	}
	return fmt.Sprintf("%.0f", f)
}
