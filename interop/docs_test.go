package interop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// block is what stands between two fences of a document.
type block struct {
	path string // of the document
	doc  string // the same, below the root
	line int    // of the first line in the block
	lang string
	text string
}

func (b block) String() string { return fmt.Sprintf("%s:%d", b.doc, b.line) }

// documents are those that people follow.
func documents(t *testing.T) (paths []string) {
	t.Helper()
	for _, pattern := range []string{"*.md", "docs/*.md", "examples/*/*.md", "bench/README.md"} {
		found, err := filepath.Glob("../" + pattern)
		require.NoError(t, err)
		require.NotEmpty(t, found, pattern)
		paths = append(paths, found...)
	}
	return paths
}

// blocks are all of all documents.
func blocks(t *testing.T) (all []block) {
	t.Helper()
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	fence := regexp.MustCompile("^ *```+(.*)$")
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		path, err = filepath.Abs(path)
		require.NoError(t, err)
		inside, number := false, 0
		for line := range strings.Lines(string(text)) {
			number++
			mark := fence.FindStringSubmatch(strings.TrimRight(line, "\n"))
			switch last := len(all) - 1; {
			case mark != nil && inside:
				inside = false
			case mark != nil:
				inside = true
				all = append(all, block{path: path, doc: strings.TrimPrefix(path, root+"/"), line: number + 1, lang: mark[1]})
			case inside:
				all[last].text += line
			}
		}
		require.False(t, inside, "%s: the last block has no end", path)
	}
	return all
}

// Every block has a language. Blocks in these are tried below; the others are pictures and
// output (text), and programs of others (java).
func TestEveryBlockOfTheDocumentsIsOfALanguageThatIsKnown(t *testing.T) {
	for _, b := range blocks(t) {
		assert.Contains(t, []string{"go", "sh", "conf", "text", "java"}, b.lang, "%v", b)
	}
}

// A block that begins with its package is a program, or a test, on its own. Any other is a part
// of package docs, whose names.go declares the names that it takes for granted: declarations
// stand there as they are, and statements in a function.
func TestGoOfTheDocumentsCompiles(t *testing.T) {
	taken := imports(t, "docs/names.go")
	overlay := newOverlay(t)
	for _, b := range blocks(t) {
		if b.lang == "go" {
			formatted, err := format.Source([]byte(b.text)) // takes parts of files, too
			assert.NoError(t, err, "%v", b)
			assert.Equal(t, string(formatted), b.text, "%v: gofmt", b)
		}
		if b.lang == "go" && !b.whole() {
			source, err := fragment(b, taken)
			if assert.NoError(t, err, "%v", b) {
				overlay.add("docs", b, "_block.go", source)
			}
		} else if b.lang == "go" {
			name := "_block.go"
			if strings.Contains(b.text, "func Test") {
				name = "_test.go"
			}
			overlay.add(b.folder(), b, name, b.source())
		}
	}
	overlay.run("list", "-export", "./docs/...") // compiles, and links nothing
}

// Programs that begin with package main are run, with a Redis where they look for it.
func TestProgramsOfTheDocumentsRun(t *testing.T) {
	redistest.SoakOnly(t) // The gate compiles them.
	s := redistest.Real(t)
	overlay, ran := newOverlay(t), 0
	for _, b := range blocks(t) {
		if b.lang == "go" && b.whole() {
			text := strings.ReplaceAll(b.text, "localhost:6379", s.Addr())
			if strings.Contains(b.text, "func Test") {
				overlay.add(b.folder(), b, "_test.go", text)
				test := filepath.Join(t.TempDir(), "test") // which has no folder to run in
				overlay.run("test", "-vet=off", "-c", "-o", test, "./"+b.folder())
				out, err := exec.CommandContext(t.Context(), test).CombinedOutput()
				assert.NoError(t, err, "%v: %s", b, out)
			} else {
				overlay.add(b.folder(), b, "_block.go", text)
				overlay.run("run", "./"+b.folder())
			}
			ran++
		}
	}
	assert.Positive(t, ran)
}

// source is the text, so marked that the compiler says where in the document it is wrong.
func (b block) source() string {
	return fmt.Sprintf("//line %s:%d\n%s", b.path, b.line, b.text)
}

func (b block) whole() bool { return strings.HasPrefix(b.text, "package ") }

// folder is one of its own, for a block that is a whole package.
func (b block) folder() string {
	return "docs/" + strings.NewReplacer("/", "_", ".", "_", ":", "_").Replace(b.String())
}

// imports are those of a Go file, by the names that they have in it.
func imports(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	require.NoError(t, err)
	byName := map[string]string{}
	version := regexp.MustCompile(`/v\d+$`)
	for _, s := range f.Imports {
		path, err := strconv.Unquote(s.Path.Value)
		require.NoError(t, err)
		name := filepath.Base(version.ReplaceAllString(path, ""))
		if s.Name != nil {
			name = s.Name.Name
		}
		byName[name] = s.Path.Value
	}
	return byName
}

// fragment makes a file of package docs out of a block.
func fragment(b block, taken map[string]string) (string, error) {
	parse := func(body string) (*ast.File, error) {
		return parser.ParseFile(token.NewFileSet(), b.String(), "package docs\n"+body, parser.SkipObjectResolution)
	}
	body := b.source()
	f, err := parse(body)
	if err != nil {
		body = fmt.Sprintf("func _() error {\n%s\nreturn nil\n}\n", b.source())
		f, err = parse(body)
	}
	if err != nil {
		return "", err
	}
	needed := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && taken[x.Name] != "" {
				needed[x.Name] = true
			}
		}
		return true
	})
	for name := range imported(f) {
		delete(needed, name)
	}
	head := "package docs\n"
	for name := range needed {
		head += fmt.Sprintf("import %s %s\n", name, taken[name])
	}
	return head + body, nil
}

// imported are the names of packages that a block imports itself.
func imported(f *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, s := range f.Imports {
		names[filepath.Base(strings.Trim(s.Path.Value, `"`))] = true
	}
	return names
}

// overlay shows the go command files that are not there.
type overlay struct {
	t       *testing.T
	dir     string
	Replace map[string]string
}

func newOverlay(t *testing.T) *overlay {
	return &overlay{t: t, dir: t.TempDir(), Replace: map[string]string{}}
}

func (o *overlay) add(folder string, b block, suffix, source string) {
	name := strings.TrimPrefix(b.folder(), "docs/") + suffix
	real := filepath.Join(o.dir, name)
	require.NoError(o.t, os.WriteFile(real, []byte(source), 0o600))
	at, err := filepath.Abs(filepath.Join(folder, name))
	require.NoError(o.t, err)
	o.Replace[at] = real
}

// run has the go command do something with these files.
func (o *overlay) run(verb string, args ...string) {
	o.t.Helper()
	list, err := json.Marshal(o)
	require.NoError(o.t, err)
	path := filepath.Join(o.dir, "overlay.json")
	require.NoError(o.t, os.WriteFile(path, list, 0o600))
	out, err := exec.CommandContext(o.t.Context(), "go", append([]string{verb, "-overlay", path}, args...)...).CombinedOutput()
	assert.NoError(o.t, err, "go %s: %s", verb, out)
}

// A block of commands is run by bash, from the root of the repository if it begins there, and
// else in a folder with some commands to run under a lock. testdata/docs.sh says which
// commands are tried in another way. All commands, also those within the text, have flags,
// tests and files that exist.
func TestCommandsOfTheDocumentsWork(t *testing.T) {
	redistest.SoakOnly(t)
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	bin, elsewhere := t.TempDir(), t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "holdfast"), "./cmd/holdfast")
	build.Dir, build.Env = root, append(os.Environ(), "GOWORK=") // the command needs the workspace
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	requireKnown(t, filepath.Join(bin, "holdfast"))
	for _, name := range []string{"nightly.sh", "report.sh", "job.sh", "step-one.sh", "step-two.sh", "deploy"} {
		require.NoError(t, os.WriteFile(filepath.Join(elsewhere, name), []byte("#!/bin/sh\n"), 0o700))
	}
	rules, err := filepath.Abs("testdata/docs.sh")
	require.NoError(t, err)
	atRoot := regexp.MustCompile(`^(cd|go|git|make|\.ci) `)

	ran := 0
	for _, b := range blocks(t) {
		if b.lang != "sh" {
			continue
		}
		ran++
		t.Run(strings.ReplaceAll(b.String(), "/", "_"), func(t *testing.T) {
			t.Parallel()
			s := redistest.Real(t, "--appendonly", "yes")
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", ". "+rules+"\n(\n"+b.text+"\n)") // its own trap, if it sets one
			cmd.WaitDelay = time.Second
			cmd.Dir = elsewhere
			if atRoot.MatchString(b.text) {
				cmd.Dir = root
			}
			cmd.Env = append(os.Environ(), "GOWORK=", "ROOT="+root, "PATH="+bin+":"+os.Getenv("PATH"), "REDIS_URL=redis://"+s.Addr())
			out, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%v: %s", b, out)
		})
	}
	assert.Positive(t, ran)
}

// A configuration is one that redis-server starts with.
func TestConfigurationsOfTheDocumentsAreUnderstood(t *testing.T) {
	for _, b := range blocks(t) {
		if b.lang == "conf" {
			var args []string
			for line := range strings.Lines(b.text) {
				line, _, _ = strings.Cut(line, "#")
				if words := strings.Fields(line); len(words) > 0 {
					args = append(append(args, "--"+words[0]), words[1:]...)
				}
			}
			s := redistest.Real(t, args...)
			assert.NoError(t, s.Client(t).Ping(t.Context()).Err(), "%v", b)
		}
	}
}

// A link leads to a file that there is and, if it has a #, to a heading of it. A link that is
// named for a test leads to the file with that test.
func TestLinksOfTheDocumentsLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\[([^]\[]*)\]\(([^)\s]+)\)`)
	heading := regexp.MustCompile(`(?m)^#+ +(.*)$`)
	code := regexp.MustCompile("(?ms)^ *```.*?^ *```")
	test := regexp.MustCompile(`^Test[A-Z]`)
	dropped := regexp.MustCompile("[^a-z0-9 _-]")
	tests := 0
	for _, doc := range documents(t) {
		text, err := os.ReadFile(doc)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.HasPrefix(m[2], "https://") {
				continue
			}
			path, anchor, _ := strings.Cut(m[2], "#")
			to := filepath.Join(filepath.Dir(doc), path)
			if path == "" {
				to = doc
			}
			info, err := os.Stat(to)
			if !assert.NoError(t, err, "%s: %s", doc, m[0]) || info.IsDir() {
				continue
			}
			there, err := os.ReadFile(to)
			require.NoError(t, err)
			if anchor != "" {
				var anchors []string
				for _, h := range heading.FindAllSubmatch(code.ReplaceAll(there, nil), -1) {
					id := dropped.ReplaceAllString(strings.ToLower(string(h[1])), "")
					anchors = append(anchors, strings.ReplaceAll(id, " ", "-"))
				}
				assert.Contains(t, anchors, anchor, "%s: %s", doc, m[0])
			}
			if name := strings.Trim(m[1], "`"); test.MatchString(name) {
				tests++
				assert.True(t, bytes.Contains(there, []byte("func "+name+"(t *testing.T)")), "%s: %s", doc, m[0])
			}
		}
	}
	assert.Positive(t, tests)
}

// A user that reads the tables of options and errors has seen them all.
func TestTablesOfTheDocumentsHaveEveryOptionAndError(t *testing.T) {
	for _, d := range []struct{ doc, path, exported string }{
		{"../docs/options.md", "../option.go", `(?m)^func (With\w+)\(`},
		{"../docs/errors.md", "../errors.go", `(?m)^\t(Err\w+)\b.*=`},
	} {
		doc, err := os.ReadFile(d.doc)
		require.NoError(t, err)
		source, err := os.ReadFile(d.path)
		require.NoError(t, err)
		names := regexp.MustCompile(d.exported).FindAllSubmatch(source, -1)
		require.GreaterOrEqual(t, len(names), 10, d.path)
		for _, name := range names {
			row := regexp.MustCompile("(?m)^\\| `" + string(name[1]) + "\\b")
			assert.True(t, row.Match(doc), "%s has no row of %s", d.doc, name[1])
		}
	}
}
