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

// restartedScript and restartedUnit tell that a machine was started anew before
// it was a node. The script of the first boot puts them on the disk meanwhile.
var (
	//go:embed restarted.sh
	restartedScript []byte
	//go:embed nova-restarted.service
	restartedUnit []byte
)

// reportFiles are what a machine tells its hypervisor with.
func reportFiles(*Input) ([]writeFile, error) {
	return []writeFile{
		newFile(path.Join(runDir, "report.sh"), "0600", reportScript),
		newFile(path.Join(runDir, "restarted.sh"), "0600", restartedScript),
		newFile(path.Join(runDir, "nova-restarted.service"), "0600", restartedUnit),
	}, nil
}
