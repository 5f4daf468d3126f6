package bootstrap

import (
	"fmt"
	"path"
	"strings"
)

// restoreFiles are the files for the restore of an etcd snapshot.
func restoreFiles(in *Input) ([]writeFile, error) {
	if in.Restore == nil || in.Mode != Init || len(in.ExternalEtcd) > 0 {
		return nil, nil
	}
	cluster := clusterConfiguration(in)
	if err := cluster.patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
		return nil, err
	}
	configuration, err := cluster.marshal()
	if err != nil {
		return nil, err
	}
	settings := fmt.Sprintf("DATA_DIR=%s\nSNAPSHOT=%s\nSHA256=%s\n",
		quote(dataDir(cluster)), quote(in.Restore.Snapshot), quote(in.Restore.SHA256))
	curl := []string{
		"url = " + quoteCurl(in.Restore.URL), "fail", "silent", "show-error",
		"connect-timeout = 30", "speed-limit = 1", "speed-time = 60", "retry = 20", "retry-delay = 5", "retry-all-errors",
	}
	var files []writeFile
	if len(in.Restore.CA) > 0 {
		ca := path.Join(restoreDir, "ca.crt")
		curl = append(curl, "cacert = "+quoteCurl(ca))
		files = append(files, newFile(ca, "0600", in.Restore.CA))
	}
	return append(files,
		newFile(path.Join(restoreDir, "settings"), "0600", []byte(settings)),
		newFile(path.Join(restoreDir, "curl"), "0600", []byte(strings.Join(curl, "\n")+"\n")),
		newFile(path.Join(restoreDir, "cluster.yaml"), "0600", configuration),
		newFile(path.Join(runDir, "preKubeadmCommands", lastCommand), "0600", restoreScript),
	), nil
}

// quoteCurl quotes a value for a configuration file of curl.
func quoteCurl(value string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
}
