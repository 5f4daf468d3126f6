//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
package tools

import (
	_ "go.etcd.io/etcd/etcdutl/v3"
	_ "go.etcd.io/etcd/server/v3"
)
