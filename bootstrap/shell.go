package bootstrap

import "strings"

// quote quotes a value as one word for a shell.
func quote(value string) string {
	return "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
}
