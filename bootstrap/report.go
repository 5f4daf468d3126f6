package bootstrap

import (
	_ "embed"
	"path"
)

// reportScript holds the functions by which a machine tells its hypervisor how
// far its first boot is, and why it ended.
//
//go:embed report.sh
var reportScript []byte

// reportFiles are what a machine tells its hypervisor with.
func reportFiles(*Input) ([]writeFile, error) {
	return []writeFile{newFile(path.Join(runDir, "report.sh"), "0600", reportScript)}, nil
}
