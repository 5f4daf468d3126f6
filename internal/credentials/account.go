package credentials

import (
	"fmt"
	"io"
)

// Account is what a driver logs in with. However it is formatted, it does not
// tell the password.
type Account struct {
	Username string
	Password string
}

// Format writes the account without its secrets, whatever the verb.
func (Account) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, hidden) }

// MarshalLog keeps the account out of logs.
func (Account) MarshalLog() any { return hidden }

// MarshalText keeps the account out of JSON and YAML.
func (Account) MarshalText() ([]byte, error) { return []byte(hidden), nil }

const hidden = "(credentials)"
