package bed

import (
	"bufio"
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/cluster-api/util/secret"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/nova-platform/cluster-api-provider-nova/test/cakeys"
)

// CAKeys returns all places in the bed where it finds a private key of the CAs of
// a cluster: Secrets, files of the management cluster, disks of hosts, logs, and the
// memory of programs other than the excepted ones. A key in a file that is
// compressed other than by gzip is not found.
func (b *Bed) CAKeys(ctx context.Context, c Cluster, except ...string) ([]string, error) {
	finder, err := b.caKeyFinder(ctx, c)
	if err != nil {
		return nil, err
	}
	places, err := secretsWith(ctx, b.Client, finder)
	if err != nil {
		return nil, err
	}
	inFiles, err := filesWith(string(b.layout), finder)
	if err != nil {
		return nil, err
	}
	inMemory, err := b.programsWith(finder, except)
	if err != nil {
		return nil, err
	}
	return append(append(places, inFiles...), inMemory...), nil
}

func (b *Bed) caKeyFinder(ctx context.Context, c Cluster) (*cakeys.Finder, error) {
	var all []*x509.Certificate
	for _, purpose := range []secret.Purpose{secret.ClusterCA, secret.EtcdCA, secret.FrontProxyCA} {
		s := &corev1.Secret{}
		if err := b.Client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: secret.Name(c.Name, purpose)}, s); err != nil {
			return nil, fmt.Errorf("reading the certificate of a CA: %w", err)
		}
		certificates, err := certutil.ParseCertsPEM(s.Data[secret.TLSCrtDataName])
		if err != nil {
			return nil, fmt.Errorf("reading the certificate in Secret %s: %w", s.Name, err)
		}
		all = append(all, certificates...)
	}
	return cakeys.New(all...)
}

func secretsWith(ctx context.Context, c client.Reader, finder *cakeys.Finder) (places []string, err error) {
	list := &corev1.SecretList{}
	if err := c.List(ctx, list); err != nil {
		return nil, fmt.Errorf("listing Secrets: %w", err)
	}
	for i := range list.Items {
		for key, data := range list.Items[i].Data {
			if finder.In(data) {
				places = append(places, fmt.Sprintf("Secret %s, key %s", client.ObjectKeyFromObject(&list.Items[i]), key))
			}
		}
	}
	return places, nil
}

// programDirs contain programs and images, which were made before the CAs.
var programDirs = []string{"bin", "io.containerd.content.v1.content", "io.containerd.snapshotter.v1.native"}

// filesWith searches the regular files of a directory. A file may be deleted meanwhile.
func filesWith(dir string, finder *cakeys.Finder) (places []string, err error) {
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || entry.IsDir() && slices.Contains(programDirs, entry.Name()) {
			return cmp.Or(err, fs.SkipDir)
		}
		if !entry.Type().IsRegular() {
			return nil
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && finder.In(data) {
			places = append(places, "file "+path)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("searching files: %w", err)
	}
	return places, nil
}

// programsWith searches the memory of the programs of the bed.
func (b *Bed) programsWith(finder *cakeys.Finder, except []string) (places []string, err error) {
	entries, err := os.ReadDir(b.layout.pids())
	if err != nil {
		return nil, fmt.Errorf("listing programs: %w", err)
	}
	for _, entry := range entries {
		name, is := strings.CutSuffix(entry.Name(), ".pid")
		if !is || slices.Contains(except, name) {
			continue
		}
		pid, err := b.Pid(name)
		if err != nil {
			return nil, fmt.Errorf("finding program %s: %w", name, err)
		}
		found, err := memoryWith(pid, finder)
		if err != nil {
			return nil, fmt.Errorf("reading the memory of %s: %w", name, err)
		}
		if found {
			places = append(places, "memory of "+name)
		}
	}
	return places, nil
}

// memoryWith searches the memory that a process can write.
func memoryWith(pid int, finder *cakeys.Finder) (bool, error) {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return false, err
	}
	defer func() { _ = maps.Close() }()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return false, err
	}
	defer func() { _ = memory.Close() }()
	lines := bufio.NewScanner(maps)
	for lines.Scan() {
		var from, to uint64
		var mode string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &from, &to, &mode); err != nil {
			return false, fmt.Errorf("reading memory map: %w", err)
		}
		if !strings.HasPrefix(mode, "rw") {
			continue
		}
		// A part that the process has just released cannot be read.
		data, err := io.ReadAll(io.NewSectionReader(memory, int64(from), int64(to-from)))
		if err == nil && finder.In(data) {
			return true, nil
		}
	}
	return false, lines.Err()
}
