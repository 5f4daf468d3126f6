package site

import (
	"context"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/plan"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/pve"
	"github.com/nova-platform/cluster-api-provider-nova/providers/proxmox/reads"
)

// Image is an image with bootstrap data: a node that has its storage, and the storage.
type Image struct{ Node, Storage string }

const (
	// maxImages limits the machines whose images are known, because a server of a tenant
	// may list any number of them.
	maxImages = 20_000
	// maxStorages limits the storages whose images are read. A local storage counts once
	// for each node.
	maxStorages = 5_000
	// maxOwnImages limits the images of one machine.
	maxOwnImages = 16
)

// SetImage stores that an image of a machine may exist.
func (s *Session) SetImage(id uuid.UUID, image Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setImage(id, image)
}

// setImage stores that an image of a machine may exist, before the other ones. The caller
// holds the lock.
func (s *Session) setImage(id uuid.UUID, image Image) {
	others := s.otherImages(id, image)
	s.images[id] = append([]Image{image}, others[:min(len(others), maxOwnImages-1)]...)
}

// otherImages returns the images of a machine without one. All nodes have the same image
// in a shared storage. The caller holds the lock.
func (s *Session) otherImages(id uuid.UUID, image Image) []Image {
	shared := slices.ContainsFunc(s.storages, func(r *pve.Resource) bool { return r.Storage == image.Storage && r.Shared == 1 })
	return slices.DeleteFunc(slices.Clone(s.images[id]), func(other Image) bool {
		return other.Storage == image.Storage && (shared || other.Node == image.Node)
	})
}

// addImage stores an image of a machine that was found, after the ones that are known. The
// caller holds the lock.
func (s *Session) addImage(id uuid.UUID, image Image) {
	if known := s.images[id]; len(s.otherImages(id, image)) == len(known) && len(known) < maxOwnImages {
		s.images[id] = append(known, image)
	}
}

// ImageDeleted stores that an image of a machine does not exist.
func (s *Session) ImageDeleted(id uuid.UUID, image Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.images[id] = s.otherImages(id, image); len(s.images[id]) == 0 {
		delete(s.images, id)
	}
	m := s.machines.Get(id)
	m.Uploaded, m.ImageDeleted = false, true
	s.wake(m.Key)
}

// AwaitImages delivers a machine for which Find did not know the images of an earlier process.
// They may have been read since then.
func (s *Session) AwaitImages(id uuid.UUID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.machines.Get(id).checking = true
	s.machines.PollSoon()
}

// readImages reads the images in the storages that were not read yet: an earlier process
// may have left some. Later images are those that the session uploads. A storage that does
// not respond delays nothing else: it is read again later.
func (s *Session) readImages(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(reads.Parallel / 2)
	for key, r := range s.unreadStorages() {
		group.Go(func() error {
			s.readStorage(ctx, key, r)
			return nil
		})
	}
	_ = group.Wait() // none fails
	s.mu.Lock()
	defer s.mu.Unlock()
	s.imagesRead = s.imagesRead || ctx.Err() == nil
	return nil
}

// unreadStorages returns the storages whose images must be read, and forgets those that
// the list does not have.
func (s *Session) unreadStorages() map[string]*pve.Resource {
	s.mu.Lock()
	defer s.mu.Unlock()
	listed, due := map[string]bool{}, map[string]*pve.Resource{}
	for _, r := range s.storages {
		listed[contentsKey(r)] = true
	}
	maps.DeleteFunc(s.contents, func(key string, _ time.Time) bool { return !listed[key] })
	added := 0
	for _, r := range s.storages {
		key := contentsKey(r)
		if r.Status != "available" || !r.Has("iso") || due[key] != nil {
			continue
		}
		next, known := s.contents[key]
		switch {
		case !known && len(s.contents)+added < maxStorages:
			added++
			due[key] = r
		case known && !next.IsZero() && time.Now().After(next):
			due[key] = r
		}
	}
	return due
}

// contentsKey returns the key of a storage: all nodes have the same images in a shared one.
func contentsKey(r *pve.Resource) string {
	if r.Shared == 0 {
		return r.Storage + "/" + r.Node
	}
	return r.Storage
}

// readStorage reads the images in a storage.
func (s *Session) readStorage(ctx context.Context, key string, r *pve.Resource) {
	var found []struct {
		Volume string `json:"volid"`
	}
	err := s.client.Do(ctx, pve.Request{
		Method: http.MethodGet, Path: []string{"nodes", r.Node, "storage", r.Storage, "content"}, Form: url.Values{"content": {"iso"}}, Into: &found,
	})
	if ctx.Err() != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.contents[key] = time.Time{}
	if err != nil {
		s.contents[key] = time.Now().Add(s.timeouts.Bootstrap)
	}
	var woken []hypervisor.Key
	for _, volume := range found {
		if id, ok := plan.ImageOwner(volume.Volume); ok && len(s.images) < maxImages {
			s.addImage(id, Image{r.Node, r.Storage})
			if m := s.machines.Known(id); m != nil {
				woken = append(woken, m.Key)
			}
		}
	}
	s.wake(woken...)
}
