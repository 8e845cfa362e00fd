package bench

import (
	"fmt"
	"html"
	"io"
	"math"
	"strings"
)

// Sizes of a plot, in pixels.
const (
	plotWidth   = 760
	plotLabel   = 330 // room for the names of bars
	plotBar     = 14
	plotCurve   = 220 // height of a curve
	plotMargin  = 16
	plotNumbers = 110 // room for numbers at the right
)

const (
	colourMeasured = "#1f6f8b"
	colourCeiling  = "#c9d6df"
)

// Plot draws results as one SVG: curves where the cases stand on an axis, bars
// elsewhere; what was measured beside its ceiling.
func Plot(w io.Writer, results []Result) error {
	var body strings.Builder
	y := float64(plotMargin)
	for _, r := range results {
		y = panel(&body, r, y) + plotMargin
	}
	_, err := fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%.0f" font-family="sans-serif" font-size="12">
<rect width="100%%" height="100%%" fill="white"/>
%s</svg>
`, plotWidth, y, body.String())
	return err
}

// rateOf is what the ceiling is compared with, and its unit.
func rateOf(r *Result) (rate float64, unit string) {
	switch {
	case r.HandlesPerSecond > 0:
		return r.HandlesPerSecond, "handles/s"
	case r.FragmentsPerSecond > 0:
		return r.FragmentsPerSecond, "fragments/s"
	}
	return r.P50Ms, "ms"
}

// panel draws one result from y on and returns where it ends.
func panel(b *strings.Builder, r Result, y float64) float64 {
	_, unit := rateOf(&r)
	text(b, plotMargin, y+12, "start", fmt.Sprintf("%s, %s", r.Workload, unit), "bold")
	const legend = `<tspan fill="` + colourMeasured + `">&#9632;</tspan> measured <tspan fill="` + colourCeiling + `">&#9632;</tspan> ceiling`
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", plotWidth-plotMargin, y+12, legend)
	y += 24
	list := r.Cases
	if len(list) == 0 {
		list = []Result{r}
	}
	if len(list) >= 3 && onAxis(list) {
		return curve(b, list, y)
	}
	return bars(b, list, y)
}

func onAxis(list []Result) bool {
	for i := range list {
		if list[i].at <= 0 || i > 0 && list[i].at <= list[i-1].at {
			return false
		}
	}
	return true
}

func bars(b *strings.Builder, list []Result, y float64) float64 {
	most := 0.0
	for i := range list {
		rate, _ := rateOf(&list[i])
		most = max(most, rate, list[i].Ceiling)
	}
	scale := (plotWidth - plotLabel - plotNumbers) / most
	for i := range list {
		r := &list[i]
		rate, _ := rateOf(r)
		name := r.Case
		if name == "" {
			name = r.Workload
		}
		text(b, plotLabel-8, y+plotBar, "end", name, "normal")
		for k, v := range []float64{rate, r.Ceiling} {
			colour := []string{colourMeasured, colourCeiling}[k]
			if v > 0 {
				fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%.1f" height="%d" fill="%s"/>`+"\n", plotLabel, y+float64(k*plotBar), v*scale, plotBar-2, colour)
				text(b, plotLabel+v*scale+4, y+float64(k*plotBar)+plotBar-4, "start", short(v)+ratioOf(r, k), "normal")
			}
		}
		y += 2*plotBar + 8
	}
	return y
}

func ratioOf(r *Result, bar int) string {
	if bar > 0 || r.Ratio == 0 {
		return ""
	}
	return fmt.Sprintf(" (%.2f)", r.Ratio)
}

// curve has a logarithmic axis: settings and sizes are tried in steps of that
// kind.
func curve(b *strings.Builder, list []Result, y float64) float64 {
	most := 0.0
	for i := range list {
		rate, _ := rateOf(&list[i])
		most = max(most, rate, list[i].Ceiling)
	}
	left, right, bottom := 70.0, float64(plotWidth-plotMargin-40), y+plotCurve
	low, high := math.Log(list[0].at), math.Log(list[len(list)-1].at)
	x := func(at float64) float64 { return left + (math.Log(at)-low)/(high-low)*(right-left) }
	top := func(v float64) float64 { return bottom - v/most*plotCurve*0.95 }
	fmt.Fprintf(b, `<path d="M%.1f %.1fV%.1fH%.1f" fill="none" stroke="#888"/>`+"\n", left, y, bottom, right)
	for _, part := range []float64{0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(b, `<path d="M%.1f %.1fH%.1f" stroke="#eee"/>`+"\n", left, top(most*part), right)
		text(b, left-6, top(most*part)+4, "end", short(most*part), "normal")
	}
	for k, colour := range []string{colourCeiling, colourMeasured} {
		var path, dots strings.Builder
		for i := range list {
			v := list[i].Ceiling
			if k == 1 {
				v, _ = rateOf(&list[i])
			}
			if v <= 0 {
				continue
			}
			move := "L"
			if path.Len() == 0 {
				move = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", move, x(list[i].at), top(v))
			fmt.Fprintf(&dots, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x(list[i].at), top(v), colour)
		}
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n%s", path.String(), colour, dots.String())
	}
	for i := range list {
		text(b, x(list[i].at), bottom+16, "middle", strings.TrimSuffix(afterEquals(list[i].Case), " stored"), "normal")
	}
	if key, _, ok := strings.Cut(list[0].Case, "="); ok {
		text(b, (left+right)/2, bottom+32, "middle", key, "normal")
	}
	return bottom + 38
}

func afterEquals(name string) string {
	if _, value, ok := strings.Cut(name, "="); ok {
		return value
	}
	return name
}

func text(b *strings.Builder, x, y float64, anchor, what, weight string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" font-weight="%s">%s</text>`+"\n", x, y, anchor, weight, html.EscapeString(what))
}

// short writes a number with as many digits as can be read off a plot.
func short(v float64) string {
	switch {
	case v >= 10_000:
		return fmt.Sprintf("%.0f k", v/1000)
	case v >= 1000:
		return fmt.Sprintf("%.1f k", v/1000)
	case v >= 10:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2f", v)
}
