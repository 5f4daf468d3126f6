package bootstrap

import "github.com/nova-platform/cluster-api-provider-nova/hostagent/nodeconfig"

// addRestore adds the snapshot that etcd starts with.
func addRestore(in *Input, config *nodeconfig.Config) error {
	if in.Restore == nil || in.Mode != Init || len(in.ExternalEtcd) > 0 {
		return nil
	}
	cluster := clusterConfiguration(in)
	if err := cluster.patch(in.Spec.Kubeadm.ConfigPatches); err != nil {
		return err
	}
	configuration, err := cluster.marshal()
	if err != nil {
		return err
	}
	config.Join.Restore = &nodeconfig.Restore{
		Snapshot: in.Restore.Snapshot, URL: in.Restore.URL, SHA256: in.Restore.SHA256, CA: string(in.Restore.CA),
		DataDir: dataDir(cluster), ClusterConfiguration: string(configuration),
	}
	return nil
}
