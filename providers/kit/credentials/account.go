package credentials

import (
	"fmt"
	"io"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
)

// Login contains the credentials together with the only server to which they
// may be sent. It is formatted as the account: without its secrets.
type Login struct {
	Account

	// Server is the host name or address of the hypervisor.
	Server string
	// TLS defines how the certificate of Server is verified.
	TLS infrav1.Trust
	// Identity is the identity that shares the credentials; nil for the
	// cluster's own Secret. Its bounds limit the cluster.
	Identity Identity
}

// Account contains the user and password of a driver. No format prints the
// password.
type Account struct {
	Username string
	Password string
}

// Format writes the account without its secrets, for every verb.
func (Account) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, hidden) }

// MarshalLog keeps the account out of logs.
func (Account) MarshalLog() any { return hidden }

// MarshalText keeps the account out of JSON and YAML.
func (Account) MarshalText() ([]byte, error) { return []byte(hidden), nil }

const hidden = "(credentials)"
