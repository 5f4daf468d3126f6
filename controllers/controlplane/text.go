package controlplane

import (
	"fmt"
	"strings"
)

// namesShown bounds the names in a message.
const namesShown = 5

// shorten joins names for a message.
func shorten(names []string) string {
	if len(names) <= namesShown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:namesShown], ", "), len(names)-namesShown)
}
