//go:build ignore

// This program makes the pictures of the README from runs of programs:
//
//	go run docs/pictures.go demo > docs/demo.svg
//	go run docs/pictures.go deadlock > docs/deadlock.svg
//
// The first needs script(1), for a terminal of 80 columns. It has a moment in which one process holds
// the lock and the others wait, and below that the end of the run. The other one has a circle as
// examples/deadlock tells it.
package main

import (
	"fmt"
	"html"
	"log"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	columns     = 80
	column, row = 8.4, 18 // in pixels
	margin      = 16
)

func main() {
	switch strings.Join(os.Args[1:], " ") {
	case "demo":
		demo()
	case "deadlock":
		deadlock()
	default:
		log.Fatal("usage: go run docs/pictures.go demo|deadlock")
	}
}

func demo() {
	const bar = " of 5s" // the end of the line between what moves and what was measured
	const run = "stty cols 80 rows 30 && go run ./cmd/holdfast/demo"
	cmd := exec.Command("script", "-qefc", run, "/dev/null")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatal(err)
	}
	moments := regexp.MustCompile(`\x1b\[\?7l(?:\r\x1b\[\d+A)?`).Split(string(out), -1)
	_, summary, _ := strings.Cut(moments[len(moments)-1], bar)
	late := moments[len(moments)/2:]
	i := slices.IndexFunc(late, func(m string) bool {
		return strings.Count(m, "HOLDS ") == 1 && strings.Count(m, "waits ") == 3
	})
	if i < 0 {
		log.Fatal("there was no moment with one holder and three waiters")
	}
	above, _, _ := strings.Cut(late[i], bar)
	lines := strings.Split(strings.TrimSpace(above)+bar+strings.TrimRight(summary, "\r\n"), "\n")
	begin(len(lines), "holdfast demo: four processes hand one lock over. One holds it, three wait. Below: turns, hand-overs, waits, no violations.")
	draw(0, lines)
	fmt.Println("</svg>")
}

// deadlock draws the two waits of a circle as arrows, and below that what is told of it.
func deadlock() {
	cmd := exec.Command("go", "run", ".")
	cmd.Dir = "examples/deadlock"
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatal(err)
	}
	waits := regexp.MustCompile(`  "(.+)" waits (\S+) for mutex "(.+)", which is held by "(.+)" (\(fence \d+\) for \S+)`).FindAllStringSubmatch(string(out), -1)
	if len(waits) != 2 {
		log.Fatalf("want a circle of two, got: %s", out)
	}
	var told []string
	for _, w := range waits {
		told = append(told, fmt.Sprintf("  %q waits %s for mutex %q,", w[1], w[2], w[3]), fmt.Sprintf("    which is held by %q %s", w[4], w[5]))
	}
	victim, other := waits[0], waits[1] // the youngest comes first
	const above, wide, from, to = 8, 190, margin + 200.0, margin + columns*column - 200.0
	begin(above+5, fmt.Sprintf("%s waits for %s, and %s for %s. The younger wait ends with an error that says so.", victim[1], victim[4], other[1], other[4]))
	fmt.Print(`<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#9198a1"/></marker>` +
		`<marker id="red" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#ff7b72"/></marker></defs>` + "\n")
	for i, w := range [][]string{other, victim} {
		x, y, a, b, colour, tip := margin+float64(i)*(columns*column-wide), margin+36+56*float64(i), float64(from), to, "#9198a1", "tip"
		if i == 1 {
			a, b, colour, tip = to, from, "#ff7b72", "red"
		}
		fmt.Printf(`<rect x="%.1f" y="%d" width="%d" height="110" rx="8" fill="#161b22" stroke="%s"/>`+"\n", x, margin+8, wide, colour)
		centre(x+wide/2, margin+48, "s1", w[1])
		centre(x+wide/2, margin+76, "s32", "holds "+[]string{victim[3], other[3]}[i])
		fmt.Printf(`<path d="M%.1f %.1fH%.1f" stroke="%s" stroke-width="1.5" marker-end="url(#%s)"/>`+"\n", a, y, b, colour, tip)
		centre((from+to)/2, y-8, map[string]string{"tip": "s2", "red": "s31"}[tip], "waits for "+w[3]+", "+w[2])
	}
	centre((from+to)/2, margin+36+56+20, "s31", "younger: ErrDeadlock")
	draw(above, append([]string{fmt.Sprintf("\x1b[31m%s: holdfast: acquire mutex %q: deadlock:\x1b[0m", victim[1], victim[3])}, told...))
	fmt.Println("</svg>")
}

func centre(x, y float64, class, text string) {
	fmt.Printf(`<text x="%.1f" y="%.1f" text-anchor="middle" class="%s">%s</text>`+"\n", x, y, class, html.EscapeString(text))
}

// begin opens an SVG with room for so many lines.
func begin(lines int, label string) {
	width, height := int(columns*column)+2*margin, lines*row+2*margin
	fmt.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">
<style>
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d1d7e0; white-space: pre }
  .s1 { font-weight: 700; fill: #f0f6fc } .s2 { fill: #9198a1 } .s31 { fill: #ff7b72 } .s32 { fill: #3fb950 } .s33 { fill: #d29922 } .s36 { fill: #76e3ea }
</style>
<rect width="%d" height="%d" rx="8" fill="#0d1117" stroke="#3d444d"/>
`, width, height, width, html.EscapeString(label), width, height)
}

// draw writes lines with their colours, below so many others.
func draw(above int, lines []string) {
	style := regexp.MustCompile(`\x1b\[\??([\d;]*)([A-Za-z])`)
	for i, line := range lines {
		at, class := 0, ""
		write := func(text string) {
			// Each run of characters has its place, whatever the widths of the fonts that there are.
			body := strings.TrimLeft(text, " ") // not all programs keep spaces at the beginning
			at += len(text) - len(body)
			n := utf8.RuneCountInString(body)
			if body != "" {
				fmt.Printf(`<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n",
					margin+float64(at)*column, margin+(above+i)*row+13, float64(n)*column, class, html.EscapeString(body))
			}
			at += n
		}
		line = strings.ReplaceAll(line, "\r", "")
		last := 0
		for _, m := range style.FindAllStringSubmatchIndex(line, -1) {
			write(line[last:m[0]])
			last = m[1]
			if line[m[4]:m[5]] == "m" {
				class = ""
				if code := line[m[2]:m[3]]; code != "0" {
					class = fmt.Sprintf(` class="s%s"`, code[strings.LastIndex(code, ";")+1:])
				}
			}
		}
		write(line[last:])
	}
}
