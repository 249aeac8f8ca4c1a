//go:build ignore

// This program makes the picture of the demo in the README, from a run on a terminal of 80 columns:
//
//	go run docs/demo.go > docs/demo.svg
//
// It needs script(1). The picture has a moment in which one process holds the lock and the others
// wait, and below that the end of the run.
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
	const run = "stty cols 80 rows 30 && go run ./cmd/holdfast/demo"
	cmd := exec.Command("script", "-qefc", run, "/dev/null")
	cmd.Env = append(os.Environ(), "TERM=xterm-256color")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		log.Fatal(err)
	}
	moments := regexp.MustCompile(`\x1b\[\?7l(?:\r\x1b\[\d+A)?`).Split(string(out), -1)
	_, summary, _ := strings.Cut(moments[len(moments)-1], "\x1b[?25h")
	late := moments[len(moments)/2:]
	i := slices.IndexFunc(late, func(m string) bool {
		return strings.Count(m, "HOLDS ") == 1 && strings.Count(m, "waits ") == 3
	})
	if i < 0 {
		log.Fatal("there was no moment with one holder and three waiters")
	}
	picture := late[i]
	draw(strings.Split(strings.TrimSpace(picture)+"\n\n"+strings.Trim(summary, "\r\n"), "\n"))
}

// draw writes lines with their colours as an SVG.
func draw(lines []string) {
	width, height := int(columns*column)+2*margin, len(lines)*row+2*margin
	fmt.Printf(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" role="img" aria-label="%s">
<style>
  text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; fill: #d1d7e0; white-space: pre }
  .s1 { font-weight: 700; fill: #f0f6fc } .s2 { fill: #9198a1 } .s31 { fill: #ff7b72 } .s32 { fill: #3fb950 } .s33 { fill: #d29922 } .s36 { fill: #76e3ea }
</style>
<rect width="%d" height="%d" rx="8" fill="#0d1117" stroke="#3d444d"/>
`, width, height, width, "holdfast demo: four processes hand one lock over. One holds it, three wait. Below: turns, hand-overs, waits, no violations.", width, height)
	style := regexp.MustCompile(`\x1b\[\??([\d;]*)([A-Za-z])`)
	for i, line := range lines {
		at, class := 0, ""
		write := func(text string) {
			// Each run of characters has its place, whatever the widths of the fonts that there are.
			n := utf8.RuneCountInString(text)
			if strings.TrimSpace(text) != "" {
				fmt.Printf(`<text x="%.1f" y="%d" textLength="%.1f"%s>%s</text>`+"\n",
					margin+float64(at)*column, margin+i*row+13, float64(n)*column, class, html.EscapeString(text))
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
	fmt.Println("</svg>")
}
