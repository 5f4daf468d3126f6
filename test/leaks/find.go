package leaks

import (
	"bytes"
	"fmt"
	"strings"
)

// shown is how much of a line a finding repeats.
const shown = 300

// Leak is a value of a Secret that was found in a text.
type Leak struct {
	Origin
	// Source is the text, and Line the number of the line in it.
	Source string
	Line   int
	// Text is the line without the value.
	Text string
}

// String returns the position and the origin of the value, without the value.
func (l Leak) String() string {
	return fmt.Sprintf("%s:%d has the value of key %s of Secret %s/%s: %s", l.Source, l.Line, l.Key, l.Namespace, l.Name, l.Text)
}

// Find looks for the values in a text, which is called source. It reports each
// key of a Secret once.
func (v *Values) Find(source string, text []byte) []Leak {
	v.mu.Lock()
	defer v.mu.Unlock()
	var leaks []Leak
	reported := map[Origin]bool{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		for at := 0; at+shortest <= len(line); at++ {
			for _, value := range v.index[[shortest]byte(line[at:at+shortest])] {
				from := v.from[value]
				if reported[from] || !bytes.HasPrefix(line[at:], []byte(value)) {
					continue
				}
				reported[from] = true
				leaks = append(leaks, Leak{Origin: from, Source: source, Line: number, Text: redact(line, at)})
			}
		}
	}
	return leaks
}

// redact returns the words before a value in a line. The text beside the value
// may belong to it.
func redact(line []byte, at int) string {
	before := line[max(0, at-shown):at]
	before = before[:bytes.LastIndexAny(before, " \t\"'=:\\")+1]
	return strings.ToValidUTF8(string(before), "") + "***"
}
