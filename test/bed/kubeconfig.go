package bed

import (
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig returns the settings by which a user reaches a server.
func kubeconfig(server string, ca []byte, user *clientcmdapi.AuthInfo) *clientcmdapi.Config {
	const name = "nova-bed"
	return &clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

// writeKubeconfig writes a kubeconfig in one step: a program may be waiting
// for the file to appear.
func writeKubeconfig(path string, config *clientcmdapi.Config) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	if err := clientcmd.WriteToFile(*config, path+".new"); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing kubeconfig: %w", err)
	}
	return nil
}
