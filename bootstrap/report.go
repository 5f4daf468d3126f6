package bootstrap

import (
	_ "embed"
	"path"
)

// reportScript contains the functions by which a machine reports the progress
// of its first boot and the reason of a failure to its hypervisor.
//
//go:embed report.sh
var reportScript []byte

// restartedScript and restartedUnit report that a machine was restarted before
// it became a node. The script of the first boot installs them until it ends.
var (
	//go:embed restarted.sh
	restartedScript []byte
	//go:embed nova-restarted.service
	restartedUnit []byte
)

// reportFiles are the files for reports to the hypervisor.
func reportFiles(*Input) ([]writeFile, error) {
	return []writeFile{
		newFile(path.Join(runDir, "report.sh"), "0600", reportScript),
		newFile(path.Join(runDir, "restarted.sh"), "0600", restartedScript),
		newFile(path.Join(runDir, "nova-restarted.service"), "0600", restartedUnit),
	}, nil
}
