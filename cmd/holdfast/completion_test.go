package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/completion"
)

func TestCompletionKnowsWhatCanStandWhere(t *testing.T) {
	for line, want := range map[string]string{
		"run --lock a --":              "words: --lock --kind --shared --exclusive --limit --permits --ttl --timeout --no-wait --conflict-exit-code --holder --steal --command --verbose --on-lost --grace --store --password-file --cacert --cert --key --prefix --help --",
		"":                             "words: demo run acquire renew release wait ls inspect resize unlock doctor migrate completion",
		"in":                           "words: inspect",
		"run --on-lost ":               "words: term kill ignore",
		"run --on-lost = k":            "words: kill", // in bash
		"run --on-lost=":               "words: --on-lost=term --on-lost=kill --on-lost=ignore",
		"run --on-lost=kill --gr":      "words: --grace",
		"run --lock ":                  "words:", // its value can be anything
		"run -sw ":                     "words:",
		"run -s --gr":                  "words: --grace",
		"run --cacert ":                "files:",
		"run --lock a -- ":             "program:",
		"run --lock a -- ./job.sh ":    "files:",
		"run --lock a -- git -- --lo":  "files:",
		"inspect orders --kind ":       "words: mutex rwmutex semaphore",
		"demo ":                        "words:",
		"demo --n":                     "words: --name", // others are for tests
		"inspect ":                     "words:",
		"demo --kind se":               "words: semaphore",
		"--version --frob completion ": "words: bash zsh fish",
	} {
		var b strings.Builder
		completion.Answer(&b, root(nil), strings.Split(line, " "))
		kind, rest, _ := strings.Cut(b.String(), "\n")
		got := kind + ":"
		for word := range strings.Lines(rest) {
			word, _, _ = strings.Cut(word, "\t")
			got += " " + word
		}
		assert.Equal(t, want, got, line)
	}
	var b strings.Builder
	completion.Answer(&b, root(nil), nil)
	assert.Empty(t, b.String())
}
