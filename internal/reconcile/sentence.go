package reconcile

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxMessage is the limit of an event's note, which is the shortest limit for a
// message.
const maxMessage = 1000

// Sentence converts err to a message: one line, capitalized, no full stop,
// short enough for an event.
func Sentence(err error) string {
	text := strings.TrimRight(strings.ReplaceAll(err.Error(), "\n", "; "), ". ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "")
	}
	first, size := utf8.DecodeRuneInString(text)
	if size == 0 {
		return ""
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
