package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// mutant is a bug.
type mutant struct {
	name   string
	breaks []string // such as "rule 5"
	bug    string   // in a sentence

	file, symbol string // the file from the root of the module; no symbol for all of it
	old, new     string

	soak      bool // whether its test runs as in the soak
	pkg, test string
}

// mutantsIn reads all files of a folder.
func mutantsIn(dir string) ([]*mutant, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		some, err := parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		all = append(all, some...)
	}
	return all, nil
}

var (
	heading = regexp.MustCompile(`^([a-z0-9-]+)(?: \(([a-z0-9, ]+)\))?: (.+)$`)
	place   = regexp.MustCompile(`^in (\S+)(?: (\S+))?$`)
	foundBy = regexp.MustCompile(`^found( in the soak)? by (\S+) (\S+)$`)
)

// parse reads the format that the doc of the package describes.
func parse(text string) ([]*mutant, error) {
	var all []*mutant
	m, whole := &mutant{}, true
	for i, line := range strings.Split(text, "\n") {
		var part []string
		is := func(form *regexp.Regexp) bool { part = form.FindStringSubmatch(line); return part != nil }
		switch {
		case line == "" || line[0] == '#':
		case whole && is(heading):
			m, whole = &mutant{name: part[1], bug: part[3]}, false
			if part[2] != "" {
				m.breaks = strings.Split(part[2], ", ")
			}
		case !whole && m.file == "" && is(place):
			m.file, m.symbol = part[1], part[2]
		case !whole && strings.HasPrefix(line, "- "):
			m.old += line[2:] + "\n"
		case !whole && strings.HasPrefix(line, "+ "):
			m.new += line[2:] + "\n"
		case m.file != "" && m.old != "" && is(foundBy):
			m.soak, m.pkg, m.test = part[1] != "", part[2], part[3]
			m.new = strings.TrimSuffix(m.new, "\n")
			all, whole = append(all, m), true
		default:
			return nil, fmt.Errorf("line %d is none of what may stand there: %q", i+1, line)
		}
	}
	if !whole {
		return nil, fmt.Errorf("%s ends too early", m.name)
	}
	return all, nil
}

// mutate returns the file that has the symbol, and its text with the bug in it.
func (m *mutant) mutate(root string) (file, mutated string, err error) {
	file, text, from, to, err := m.find(root)
	if err != nil {
		return "", "", fmt.Errorf("%s: %w", m.name, err)
	}
	var form strings.Builder
	for _, r := range strings.Join(strings.Fields(m.old), "") {
		form.WriteString(regexp.QuoteMeta(string(r)) + `\s*`)
	}
	at := regexp.MustCompile(strings.TrimSuffix(form.String(), `\s*`)).FindAllStringIndex(text[from:to], -1)
	if len(at) != 1 {
		return "", "", fmt.Errorf("%s: found %d times, not once, in %s %s: %s", m.name, len(at), m.file, m.symbol, m.old)
	}
	return file, text[:from+at[0][0]] + m.new + text[from+at[0][1]:], nil
}

// find returns the file with the symbol, and from where to where in its text that stands.
func (m *mutant) find(root string) (file, text string, from, to int, err error) {
	file = filepath.Join(root, m.file)
	if text, from, to, err = span(file, m.symbol); err == nil && to > 0 {
		return file, text, from, to, nil
	}
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*"+filepath.Ext(file)))
	var have []string
	for _, other := range others {
		if _, _, end, err := span(other, m.symbol); err == nil && end > 0 && m.symbol != "" && !strings.HasSuffix(other, "_test.go") {
			have = append(have, other)
		}
	}
	if len(have) != 1 {
		return "", "", 0, 0, fmt.Errorf("%s has no %s, and %d other files have it: %w", m.file, m.symbol, len(have), err)
	}
	text, from, to, err = span(have[0], m.symbol)
	return have[0], text, from, to, err
}

// span returns the text of a file, and where a symbol stands in it; up to 0 if nowhere.
func span(file, symbol string) (text string, from, to int, err error) {
	b, err := os.ReadFile(file)
	if err != nil || symbol == "" {
		return string(b), 0, len(b), err
	}
	if filepath.Ext(file) != ".go" {
		at := regexp.MustCompile(`(?ms)^(?:local )?function ` + regexp.QuoteMeta(symbol) + `\(.*?^end$`).FindIndex(b)
		if at == nil {
			return string(b), 0, 0, nil
		}
		return string(b), at[0], at[1], nil
	}
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, file, b, parser.SkipObjectResolution)
	if err != nil {
		return "", 0, 0, err
	}
	for _, d := range f.Decls {
		for name, node := range declared(d) {
			if name == symbol {
				return string(b), files.Position(node.Pos()).Offset, files.Position(node.End()).Offset, nil
			}
		}
	}
	return string(b), 0, 0, nil
}

// declared returns what a declaration declares, by name.
func declared(d ast.Decl) map[string]ast.Node {
	all := map[string]ast.Node{}
	switch d := d.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil {
			on := d.Recv.List[0].Type
			if p, ok := on.(*ast.StarExpr); ok {
				on = p.X
			}
			if g, ok := on.(*ast.IndexExpr); ok {
				on = g.X
			}
			name = fmt.Sprintf("%s.%s", on, name)
		}
		all[name] = d
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				all[s.Name.Name] = s
			case *ast.ValueSpec:
				for _, name := range s.Names {
					all[name.Name] = s
				}
			}
		}
	}
	return all
}
