package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/holdfast-go/holdfast"

// matter returns a hash of what a run tells about: the packages of holdfast that workers use, with
// the scripts. Comments do not count, nor do tests.
func matter() (string, error) {
	root, err := output("git", "rev-parse", "--show-toplevel")
	if err != nil {
		return "", err
	}
	list := exec.Command("go", "list", "-deps", "-f", `{{$p := .}}{{range .GoFiles}}{{$p.ImportPath}} {{$p.Dir}} {{.}}
{{end}}{{range .EmbedFiles}}{{$p.ImportPath}} {{$p.Dir}} {{.}}
{{end}}`, module, module+"/driver/redisdriver", module+"/driver/redlock")
	list.Dir, list.Stderr = root, os.Stderr
	out, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	all := sha256.New()
	for _, line := range lines {
		of, rest, _ := strings.Cut(line, " ")
		dir, file, ok := strings.Cut(rest, " ")
		if !ok || of != module && !strings.HasPrefix(of, module+"/") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return "", err
		}
		fmt.Fprintf(all, "%s/%s\n", of, file)
		matterOf(all, file, text)
	}
	return fmt.Sprintf("%x", all.Sum(nil)[:6]), nil
}

// matterOf writes a file without its comments.
func matterOf(w io.Writer, name string, text []byte) {
	switch filepath.Ext(name) {
	case ".go":
		var s scanner.Scanner
		files := token.NewFileSet()
		s.Init(files.AddFile(name, -1, len(text)), text, nil, 0)
		for {
			_, what, literal := s.Scan()
			if what == token.EOF {
				return
			}
			if what != token.SEMICOLON {
				fmt.Fprintln(w, what, literal)
			}
		}
	case ".lua":
		for line := range bytes.Lines(text) {
			if line = bytes.TrimSpace(line); len(line) > 0 && !bytes.HasPrefix(line, []byte("--")) {
				fmt.Fprintf(w, "%s\n", line)
			}
		}
	default:
		_, _ = w.Write(text)
	}
}

// output returns what a program says.
func output(name string, args ...string) (string, error) {
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

// commit says which version of the repository this is, apart from changes of the given files.
func commit(besides ...string) (string, error) {
	hash, err := output("git", "rev-parse", "--short", "HEAD")
	if err != nil {
		return "", err
	}
	diff := []string{"diff", "--quiet", "HEAD", "--", ":/"}
	for _, name := range besides {
		if name != "" {
			diff = append(diff, ":!"+name)
		}
	}
	if exec.Command("git", diff...).Run() != nil {
		hash += " with changes"
	}
	return hash, nil
}
