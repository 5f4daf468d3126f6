package bootstrap

import "strings"

const (
	// etcdDataDir is kubeadm's default data directory of etcd.
	etcdDataDir = "/var/lib/etcd"

	// The certificates of external etcd on a control plane machine, at the
	// paths of kubeadm's own etcd certificates.
	etcdCAFile         = "/etc/kubernetes/pki/etcd/ca.crt"
	etcdClientCertFile = "/etc/kubernetes/pki/apiserver-etcd-client.crt"
	etcdClientKeyFile  = "/etc/kubernetes/pki/apiserver-etcd-client.key"
)

// Restore is an etcd snapshot that a machine restores before kubeadm init. It
// is empty if external etcd has the data.
type Restore struct {
	// Snapshot is the name of the snapshot, for messages.
	Snapshot string
	// URL is the download URL.
	URL string
	// SHA256 is the hash of the snapshot, in hexadecimal.
	SHA256 string
	// CA contains the certificates that verify the server. If not set, the CAs
	// of the system are used.
	CA []byte
}

// etcdConfiguration returns the etcd section of kubeadm's ClusterConfiguration.
func etcdConfiguration(in *Input) map[string]any {
	if len(in.ExternalEtcd) > 0 {
		return map[string]any{"external": map[string]any{
			"endpoints": in.ExternalEtcd, "caFile": etcdCAFile, "certFile": etcdClientCertFile, "keyFile": etcdClientKeyFile,
		}}
	}
	local := map[string]any{"extraArgs": mergeArgs(nil, in.Etcd.ExtraArgs)}
	addEnvs(local, in.Etcd.ExtraEnvs)
	for field, value := range map[string]string{
		"dataDir": in.Etcd.DataDir, "imageRepository": in.Etcd.ImageRepository, "imageTag": in.Etcd.ImageTag,
	} {
		if value != "" {
			local[field] = value
		}
	}
	return map[string]any{"local": local}
}

// expectEtcdData makes kubeadm init accept existing etcd data in dir. It runs
// after the user's patches: a patch that replaces the list must not break a
// restore.
func expectEtcdData(in *Input, initConfiguration *document, dir string) {
	registration, ok := initConfiguration.content["nodeRegistration"].(map[string]any)
	if in.Restore == nil || !ok {
		return
	}
	var ignored []any
	switch given := registration["ignorePreflightErrors"].(type) {
	case []any:
		ignored = given
	case []string:
		for _, name := range given {
			ignored = append(ignored, name)
		}
	}
	registration["ignorePreflightErrors"] = append(ignored, "DirAvailable-"+strings.ReplaceAll(dir, "/", "-"))
}

// dataDir returns the data directory of etcd.
func dataDir(cluster document) string {
	etcd, _ := cluster.content["etcd"].(map[string]any)
	local, _ := etcd["local"].(map[string]any)
	if dir, is := local["dataDir"].(string); is && dir != "" {
		return dir
	}
	return etcdDataDir
}
