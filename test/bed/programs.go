package bed

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	bootstrapv1 "github.com/nova-platform/cluster-api-provider-nova/api/bootstrap/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// ServePrograms serves kubeadm, kubelet and kubectl of versions of Kubernetes to hosts,
// and returns platform.kubernetesPrograms with them.
func (b *Bed) ServePrograms(ctx context.Context, versions ...string) (programs []bootstrapv1.KubernetesProgramsSpec, stop func(), err error) {
	listener, err := b.Listen(ctx, "tcp", host.Gateway+":0")
	if err != nil {
		return nil, nil, fmt.Errorf("serving programs: %w", err)
	}
	files := http.NewServeMux()
	server := &http.Server{Handler: files, ReadHeaderTimeout: time.Minute}
	for _, version := range versions {
		found := bootstrapv1.KubernetesProgramsSpec{Version: version}
		for name, program := range map[string]*bootstrapv1.ProgramSpec{"kubeadm": &found.Kubeadm, "kubelet": &found.Kubelet, "kubectl": &found.Kubectl} {
			pinned := name
			if version != KubernetesVersion {
				pinned += "@" + version
			}
			paths, err := tools.Paths(ctx, io.Discard, pinned)
			if err != nil {
				return nil, nil, errors.Join(err, listener.Close())
			}
			content, err := os.ReadFile(paths[pinned])
			if err != nil {
				return nil, nil, errors.Join(fmt.Errorf("serving programs: %w", err), listener.Close())
			}
			sum, at := sha256.Sum256(content), "/"+version+"/"+name
			files.HandleFunc(at, func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, paths[pinned]) })
			program.URL, program.SHA256 = "http://"+listener.Addr().String()+at, hex.EncodeToString(sum[:])
		}
		programs = append(programs, found)
	}
	go func() { _ = server.Serve(listener) }()
	return programs, func() { _ = server.Close() }, nil
}
