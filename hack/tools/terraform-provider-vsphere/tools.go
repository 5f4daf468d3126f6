//go:build tools

// Package tools names the programs that this module pins; build.sh builds them.
package tools

import _ "github.com/hashicorp/terraform-provider-vsphere"
