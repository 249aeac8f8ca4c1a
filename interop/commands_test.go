package interop_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// said is a command that a document shows: a line of a block, or a span of code in the text.
type said struct {
	doc   string // for messages
	dir   string // where it is to be run
	words []string
}

// commands are all of all documents.
func commands(t *testing.T) (all []said) {
	t.Helper()
	known := regexp.MustCompile(`^(holdfast|go|make|\.ci/\w+|cd)( |$)`)
	add := func(doc, dir, line string) string {
		line = strings.TrimPrefix(strings.TrimSpace(line), "$ ")
		line, _, _ = strings.Cut(line, " #")
		words := strings.Fields(line)
		if !known.MatchString(line) || len(words) < 2 && !strings.HasPrefix(line, ".ci/") {
			return dir
		}
		if words[0] == "cd" {
			return filepath.Join(dir, words[1])
		}
		all = append(all, said{doc, dir, words})
		return dir
	}
	for _, b := range blocks(t) {
		if dir := ".."; b.lang == "sh" || b.lang == "text" {
			for line := range strings.Lines(b.text) {
				if b.lang == "sh" || strings.HasPrefix(line, "$ ") {
					dir = add(b.String(), dir, line)
				}
			}
		}
	}
	for _, doc := range documents(t) {
		for _, span := range spans(t, doc) {
			add(doc, "..", span)
		}
	}
	return all
}

// spans are those of code in the text of a document.
func spans(t *testing.T, doc string) (all []string) {
	t.Helper()
	text, err := os.ReadFile(doc)
	require.NoError(t, err)
	block := regexp.MustCompile("(?ms)^ *```.*?^ *```")
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(block.ReplaceAllString(string(text), ""), -1) {
		all = append(all, strings.Join(strings.Fields(m[1]), " "))
	}
	return all
}

// requireKnown checks what can be told of commands without running them: the flags are known, the
// patterns match tests, the packages and files are there. holdfast is the path of the command.
func requireKnown(t *testing.T, holdfast string) {
	t.Helper()
	texts := map[string]string{}
	help := func(args ...string) string {
		key := strings.Join(args, " ")
		if texts[key] == "" {
			out, err := exec.CommandContext(t.Context(), holdfast, append(args, "--help")...).CombinedOutput()
			require.NoError(t, err, "%s", out)
			texts[key] = string(out)
		}
		return texts[key]
	}
	subcommands := regexp.MustCompile(`(?m)^   (\w+)`).FindAllStringSubmatch(help(), -1)

	ran := 0
	for _, c := range commands(t) {
		ran++
		switch verb := c.words[0]; {
		case verb == "holdfast":
			c.checkFlags(t, help, subcommands, c.words[1:])
		case verb == "make":
			makefile, err := os.ReadFile(filepath.Join(c.dir, "Makefile"))
			require.NoError(t, err)
			assert.Regexp(t, `(?m)^`+c.words[1]+`:`, string(makefile), "%s: %v", c.doc, c.words)
		case strings.HasPrefix(verb, ".ci/"):
			info, err := os.Stat(filepath.Join(c.dir, verb))
			if assert.NoError(t, err, "%s: %v", c.doc, c.words) {
				assert.NotZero(t, info.Mode()&0o100, "%s: %s cannot be run", c.doc, verb)
			}
		case verb == "go" && c.words[1] == "run" && c.words[2] == "./cmd/holdfast":
			c.checkFlags(t, help, subcommands, c.words[3:])
		case verb == "go" && c.words[1] == "run":
			c.checkProgram(t)
		case verb == "go" && c.words[1] == "test":
			c.checkTests(t)
		}
	}
	assert.Greater(t, ran, 20)
}

// checkFlags looks for the flags of a holdfast command in its help.
func (c said) checkFlags(t *testing.T, help func(...string) string, subcommands [][]string, words []string) {
	t.Helper()
	var path []string
	if !strings.HasPrefix(words[0], "-") {
		path = words[:1]
		known := false
		for _, s := range subcommands {
			known = known || s[1] == words[0]
		}
		if !assert.True(t, known, "%s: holdfast has no %q", c.doc, words[0]) {
			return
		}
	}
	text := help(path...)
	for _, w := range words {
		if w == "--" {
			break
		}
		if name, _, _ := strings.Cut(w, "="); strings.HasPrefix(w, "-") && name != "--help" && name != "--version" {
			known := regexp.MustCompile(`(^|[\s,])` + name + `\b`).MatchString(text)
			assert.True(t, known, "%s: holdfast %v has no %s", c.doc, path, name)
		}
	}
}

// checkProgram looks for a program of the repository, and its flags in its source.
func (c said) checkProgram(t *testing.T) {
	t.Helper()
	args := c.words[2:]
	if args[0] == "-race" {
		args = args[1:]
	}
	if strings.Contains(args[0], "@") {
		return // of others
	}
	folder := filepath.Join(c.dir, args[0])
	files := []string{folder}
	if filepath.Ext(folder) != ".go" {
		var err error
		files, err = filepath.Glob(folder + "/*.go")
		require.NoError(t, err)
	}
	var source string
	for _, file := range files {
		text, err := os.ReadFile(file)
		assert.NoError(t, err, "%s: %v", c.doc, c.words)
		source += string(text)
	}
	assert.True(t, strings.Contains(source, "\npackage main\n"), "%s: %v", c.doc, c.words)
	for _, w := range args[1:] {
		if name, _, _ := strings.Cut(strings.TrimLeft(w, "-"), "="); strings.HasPrefix(w, "-") {
			assert.True(t, strings.Contains(source, `"`+name+`"`), "%s: %v has no -%s", c.doc, c.words, name)
		}
	}
}

// checkTests looks for tests that match the patterns of go test.
func (c said) checkTests(t *testing.T) {
	t.Helper()
	patterns := map[string]string{}
	var packages []string
	for i := 2; i < len(c.words); i++ {
		switch w := c.words[i]; w {
		case "-run", "-bench", "-fuzz":
			i++
			patterns[w] = strings.Trim(c.words[i], "'")
		case "-count", "-benchtime", "-timeout":
			i++
		default:
			if !strings.HasPrefix(w, "-") {
				packages = append(packages, w)
			}
		}
	}
	kind := map[string]string{"-run": `(?:Test|Example|Fuzz)`, "-bench": "Benchmark", "-fuzz": "Fuzz"}
	for _, pkg := range packages {
		if pkg == "work" {
			continue // all modules
		}
		folder, all := strings.CutSuffix(pkg, "...")
		names := map[string]bool{}
		err := filepath.WalkDir(filepath.Join(c.dir, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() && !all && path != filepath.Join(c.dir, folder) {
				return filepath.SkipDir
			}
			if strings.HasSuffix(path, "_test.go") {
				source, err := os.ReadFile(path)
				require.NoError(t, err)
				for _, m := range regexp.MustCompile(`(?m)^func (\w+)\(`).FindAllSubmatch(source, -1) {
					names[string(m[1])] = true
				}
			}
			return nil
		})
		require.NoError(t, err, "%s: %v", c.doc, c.words)
		for flag, pattern := range patterns {
			first, _, _ := strings.Cut(pattern, "/")
			want, err := regexp.Compile(first)
			require.NoError(t, err, "%s: %v", c.doc, c.words)
			found := pattern == "^$" // none, on purpose
			for name := range names {
				found = found || regexp.MustCompile("^"+kind[flag]).MatchString(name) && want.MatchString(name)
			}
			assert.True(t, found, "%s: %v: nothing in %s matches %s %s", c.doc, c.words, pkg, flag, pattern)
		}
	}
}

// A span of code that looks like a path below a folder of the repository is one.
func TestPathsInTheDocumentsExist(t *testing.T) {
	root, err := os.ReadDir("..")
	require.NoError(t, err)
	top := map[string]bool{}
	for _, e := range root {
		top[e.Name()] = e.IsDir()
	}
	path := regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+/?$`)
	seen := 0
	for _, doc := range documents(t) {
		if strings.HasSuffix(doc, "CHANGELOG.md") {
			continue // has paths of its time
		}
		for _, span := range spans(t, doc) {
			if first, _, _ := strings.Cut(span, "/"); path.MatchString(span) && top[first] {
				seen++
				_, err := os.Stat(filepath.Join("..", span))
				assert.NoError(t, err, "%s: %s", doc, span)
			}
		}
	}
	assert.Greater(t, seen, 10)
}
