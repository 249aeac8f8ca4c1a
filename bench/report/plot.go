package main

import (
	"image/color"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/holdfast-go/holdfast/bench"
)

// colours are of Okabe and Ito, which the colour-blind can tell apart, too.
var colours = map[string]color.Color{
	"holdfast":        color.RGBA{0x00, 0x72, 0xB2, 0xFF},
	"holdfast strict": color.RGBA{0x56, 0xB4, 0xE9, 0xFF},
	"raw":             color.RGBA{0x80, 0x80, 0x80, 0xFF},
	"redsync":         color.RGBA{0xD5, 0x5E, 0x00, 0xFF},
	"redislock":       color.RGBA{0xE6, 0x9F, 0x00, 0xFF},
	"rueidislock":     color.RGBA{0x00, 0x9E, 0x73, 0xFF},
	"etcd":            color.RGBA{0xCC, 0x79, 0xA7, 0xFF},
}

// drawn are the contenders in plots, in the order of legends. What is in process is off
// any scale.
var drawn = []string{"holdfast", "holdfast strict", "raw", "redsync", "redislock", "rueidislock"}

// plotted is a plot in a file.
type plotted struct{ title, file string }

// drawAll draws all plots that there are results for.
func drawAll(dir string, chapters []chapter) ([]plotted, error) {
	var done []plotted
	for _, p := range []struct {
		file string
		plot func([]chapter) (*plot.Plot, bool)
	}{
		{"waits.svg", plotWaits},
		{"clients.svg", plotClients},
		{"waiters.svg", plotWaiters},
		{"waiters-cost.svg", plotCost},
	} {
		drawing, ok := p.plot(chapters)
		if !ok {
			continue
		}
		drawing.X.Max *= 1.5 // or the last label is cut off
		if err := drawing.Save(20*vg.Centimeter, 11*vg.Centimeter, filepath.Join(dir, p.file)); err != nil {
			return nil, err
		}
		done = append(done, plotted{drawing.Title.Text, p.file})
	}
	return done, nil
}

func newPlot(title, x, y string) *plot.Plot {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Title.TextStyle.Font.Size, p.Title.Padding = 14, 8
	p.X.Label.Padding, p.Y.Label.Padding = 4, 4
	p.Legend.Padding, p.Legend.ThumbnailWidth = 2, 20
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{0xE4}, color.Gray{0xE4}
	p.Add(grid)
	return p
}

// addLine adds the line of a contender, with marks on its points or as stairs.
func addLine(p *plot.Plot, contender string, points plotter.XYs, stairs bool) error {
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = colours[contender], 1.5
	if contender == ours {
		line.Width = 3
	}
	if stairs {
		line.StepStyle = plotter.PostStep
		p.Add(line)
		p.Legend.Add(contender, line)
		return nil
	}
	marks, err := plotter.NewScatter(points)
	if err != nil {
		return err
	}
	marks.Color, marks.Shape, marks.Radius = colours[contender], draw.CircleGlyph{}, line.Width+1
	p.Add(line, marks)
	p.Legend.Add(contender, line, marks)
	return nil
}

// plotWaits is the share of waits that were not longer than so much.
func plotWaits(chapters []chapter) (*plot.Plot, bool) {
	i := slices.IndexFunc(chapters, func(c chapter) bool { return c.Name == "Clients/64/hold=0s" })
	if i < 0 {
		return nil, false
	}
	p := newPlot("64 clients on one lock: how long they wait", "wait", "share of waits that take no longer")
	for _, name := range drawn {
		r := chapters[i].of(name)
		if r == nil || r.Waits.Count() == 0 {
			continue
		}
		var points plotter.XYs
		r.Waits.CDF(func(d time.Duration, share float64) {
			points = append(points, plotter.XY{X: max(d.Seconds(), 1e-6), Y: share})
		})
		if addLine(p, name, points, true) != nil {
			return nil, false
		}
	}
	logarithmic(&p.X, seconds)
	p.Y.Min, p.Y.Max = 0, 1
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = 8
	return p, true
}

func plotClients(chapters []chapter) (*plot.Plot, bool) {
	p := newPlot("Throughput on one lock, held for no time", "clients", "locks per second")
	ok := trend(p, chapters, "Clients/", "/hold=0s", bench.Throughput, 1)
	logarithmic(&p.X, plain)
	logarithmic(&p.Y, plain)
	p.Legend.Left = true
	p.Legend.XOffs, p.Legend.YOffs = 8, 8
	return p, ok
}

func plotWaiters(chapters []chapter) (*plot.Plot, bool) {
	p := newPlot("Hand-over, with so many who wait", "waiters", "median from unlock to the next lock")
	ok := trend(p, chapters, "Waiters/", "", bench.WaitP50, 1e-6)
	logarithmic(&p.X, plain)
	logarithmic(&p.Y, seconds)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = 8
	return p, ok
}

func plotCost(chapters []chapter) (*plot.Plot, bool) {
	p := newPlot("What a hand-over costs Redis, with so many who wait", "waiters", "CPU time of Redis per hand-over")
	ok := trend(p, chapters, "Waiters/", "", bench.RedisCPU, 1e-6)
	logarithmic(&p.X, plain)
	logarithmic(&p.Y, seconds)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs = 8
	return p, ok
}

// trend adds lines through the works whose names differ in a number only.
func trend(p *plot.Plot, chapters []chapter, prefix, suffix string, f bench.Figure, scale float64) bool {
	any := false
	for _, name := range drawn {
		var points plotter.XYs
		for _, c := range chapters {
			n, ok := between(c.Name, prefix, suffix)
			if r := c.of(name); ok && r != nil && r.Figures[f] > 0 {
				points = append(points, plotter.XY{X: n, Y: r.Figures[f] * scale})
			}
		}
		slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
		if len(points) > 0 && addLine(p, name, points, false) == nil {
			any = true
		}
	}
	return any
}

// between returns the number that stands between prefix and suffix.
func between(name, prefix, suffix string) (float64, bool) {
	rest, ok1 := strings.CutPrefix(name, prefix)
	rest, ok2 := strings.CutSuffix(rest, suffix)
	n, err := strconv.Atoi(rest)
	return float64(n), ok1 && ok2 && err == nil
}

// logarithmic makes an axis logarithmic, with labels at powers of ten. If there is room, it
// also labels 2 and 5 times those.
func logarithmic(a *plot.Axis, label func(float64) string) {
	if a.Min == a.Max { // which would be made wider without regard to zero
		a.Min, a.Max = a.Min/2, a.Max*2
	}
	a.Scale = plot.LogScale{}
	a.Tick.Marker = plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		roomy := high/low < 1e4
		for power := math.Pow(10, math.Floor(math.Log10(low))); power <= high; power *= 10 {
			for digit := 1.0; digit < 10; digit++ {
				t := plot.Tick{Value: digit * power}
				if digit == 1 || roomy && (digit == 2 || digit == 5) {
					t.Label = label(t.Value)
				}
				ticks = append(ticks, t)
			}
		}
		return ticks
	})
}

func plain(v float64) string { return number(v) }

func seconds(v float64) string {
	return time.Duration(math.Round(v*1e8) * 10).String()
}
