package plan

import (
	"fmt"
	"strings"
)

// namesShown bounds the names in a message.
const namesShown = 5

// Shorten joins names for a message.
func Shorten(names []string) string {
	if len(names) <= namesShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}
