package redact

import (
	"regexp"
	"strings"
)

// pem is a block with a key or a certificate, of which the first line is kept.
var pem = regexp.MustCompile(`(?s)(-----BEGIN [A-Z ]+-----).*?(?:-----END [A-Z ]+-----|$)`)

// secrets are patterns of credentials in a line; the first group of each match
// is kept.
var secrets = []*regexp.Regexp{
	regexp.MustCompile(`(?i)(\b(?:bearer|basic) +)[a-z0-9._~+/=-]{8,}`),
	regexp.MustCompile(`()\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_.-]+`),
	regexp.MustCompile(`()\b[a-z0-9]{6}\.[a-z0-9]{16}\b`),
	regexp.MustCompile(`(://)[^/@\s]+@`),
	regexp.MustCompile(`(?i)((?:password|passwd|passphrase|token|secret|credentials?|api-?_?key|certificate-?_?key|client-key-data)[a-z_-]*["']? *[:= ] *)(?:"[^"\n]*"|'[^'\n]*'|[^\s,;|]{6,})`),
	regexp.MustCompile(`()[A-Za-z0-9+/]{60,}={0,2}`),
}

// Line returns the text on one line, without credentials and without characters
// that cannot be printed.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return ' '
		}
		return r
	}, text)
	return strings.TrimSpace(Secrets(text))
}

// Secrets replaces credentials in the text with "***". Except for PEM blocks, a
// credential ends with its line.
func Secrets(text string) string {
	for _, secret := range append([]*regexp.Regexp{pem}, secrets...) {
		text = secret.ReplaceAllString(text, "${1}***")
	}
	return text
}
