package sqlfence

import "strings"

// reads reports whether a query looks as if it would only read. Nothing depends on that but the
// cost, as it may call a function that writes.
func reads(query string) bool {
	word, _ := firstWord(query)
	return strings.EqualFold(word, "select")
}

// ends reports whether a statement ends the transaction in which it is run.
func (s *statements) ends(query string) bool {
	if s.nests {
		query = afterNested(query)
	}
	word, rest := firstWord(query)
	if s.commits && lower(word) == "set" { // SET STATEMENT ... FOR, of MariaDB
		for _, part := range strings.Split(lower(rest), "for")[1:] {
			if s.ends(part) {
				return true
			}
		}
	}
	switch lower(word) {
	case "commit", "end", "abort":
		return true
	case "rollback":
		word, rest = firstWord(rest)
		if w := lower(word); w == "work" || w == "transaction" {
			word, _ = firstWord(rest)
		}
		return lower(word) != "to" // a savepoint
	}
	return s.commits && commits(word, rest)
}

// commits reports whether MySQL or MariaDB commits before a statement with these words.
// What a procedure does, or a text of several statements, is not seen.
func commits(word, rest string) bool {
	next, _ := firstWord(rest)
	second := lower(next)
	switch lower(word) {
	case "alter", "analyze", "begin", "cache", "change", "check", "flush", "grant", "install", "lock", "optimize", "purge",
		"rename", "repair", "reset", "revoke", "start", "stop", "truncate", "uninstall", "unlock", "xa":
		return true
	case "create", "drop":
		return second != "temporary"
	case "execute":
		return second == "immediate"
	case "load":
		return second == "index"
	case "set":
		return second == "password" || strings.Contains(lower(rest), "autocommit")
	}
	return false
}

// afterNested returns what comes after the comments that a statement begins with, where there may
// be comments in comments.
func afterNested(s string) string {
	for depth := 0; s != ""; {
		switch {
		case strings.HasPrefix(s, "/*"):
			depth, s = depth+1, s[2:]
		case depth > 0 && strings.HasPrefix(s, "*/"):
			depth, s = depth-1, s[2:]
		case depth > 0, strings.IndexByte(" \t\r\n\f\v;", s[0]) >= 0:
			s = s[1:]
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
		default:
			return s
		}
	}
	return ""
}

func lower(word string) string { return strings.ToLower(word) }

// firstWord returns the first word of a statement and what comes after it, without comments.
// A comment that MySQL carries out is none.
func firstWord(s string) (word, rest string) {
	for s != "" {
		switch {
		case strings.HasPrefix(s, "\ufeff"): // SQLite skips a mark of the order of bytes
			s = strings.TrimPrefix(s, "\ufeff")
		case strings.HasPrefix(s, "/*!"), strings.HasPrefix(s, "/*M!"):
			_, s, _ = strings.Cut(s, "!")
			s = strings.TrimLeft(s, "0123456789")
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s, "*/")
		case strings.HasPrefix(s, "--"), s[0] == '#':
			_, s, _ = strings.Cut(s, "\n")
		case isLetter(s[0]):
			n := 1
			for n < len(s) && isLetter(s[n]) {
				n++
			}
			return s[:n], s[n:]
		case strings.IndexByte(" \t\r\n\f\v(;*/", s[0]) >= 0: // */ ends a comment that is none
			s = s[1:]
		default:
			return "", s
		}
	}
	return "", ""
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' || b == '_' }
