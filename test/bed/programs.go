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

	"github.com/nova-platform/cluster-api-provider-nova/test/host"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// ServePrograms serves kubeadm, kubelet and kubectl of versions of Kubernetes to hosts,
// and returns platform.kubernetesPrograms with them.
func (b *Bed) ServePrograms(ctx context.Context, versions ...string) (programs []any, stop func(), err error) {
	listener, err := b.Listen(ctx, "tcp", host.Gateway+":0")
	if err != nil {
		return nil, nil, fmt.Errorf("serving programs: %w", err)
	}
	files := http.NewServeMux()
	server := &http.Server{Handler: files, ReadHeaderTimeout: time.Minute}
	for _, version := range versions {
		found := map[string]any{"version": version}
		for _, name := range []string{"kubeadm", "kubelet", "kubectl"} {
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
			found[name] = map[string]any{"url": "http://" + listener.Addr().String() + at, "sha256": hex.EncodeToString(sum[:])}
		}
		programs = append(programs, found)
	}
	go func() { _ = server.Serve(listener) }()
	return programs, func() { _ = server.Close() }, nil
}
