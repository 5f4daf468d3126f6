package manager

import (
	// An image holds the binary and no system, so it brings the public
	// authorities along. Those of a system count where there are any, for
	// instance mounted at /etc/ssl/certs.
	_ "golang.org/x/crypto/x509roots/fallback"
)
