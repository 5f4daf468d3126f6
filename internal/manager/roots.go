package manager

import (
	// An image contains only the binary, so the public CAs are compiled in. CAs
	// of the system are used if they exist, for instance if mounted at
	// /etc/ssl/certs.
	_ "golang.org/x/crypto/x509roots/fallback"
)
