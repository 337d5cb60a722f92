// Package plain makes text of others, a file's or GitHub's, fit to stand in a message.
package plain

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// secretForms are the shapes of GitHub's tokens (its documentation, "GitHub's token
// formats"), of a JWT and of a PEM, whole or cut.
var secretForms = regexp.MustCompile(`gh[a-z]_[A-Za-z0-9_.-]+|github_pat_\w+|eyJ[\w-]{8,}(\.[\w-]*)*|-----BEGIN[^\x00]*`)

// maxQuoted bounds what an error quotes of another's text, in bytes.
const maxQuoted = 200

// Line makes text of others fit to be quoted: one line, short, and without anything
// that looks like a credential.
func Line(text string) string {
	text = secretForms.ReplaceAllString(text, "[redacted]")
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxQuoted {
		text = strings.ToValidUTF8(text[:maxQuoted], "") + "..."
	}
	return text
}

// Quote is Line between quotation marks.
func Quote(text string) string { return strconv.Quote(Line(text)) }
