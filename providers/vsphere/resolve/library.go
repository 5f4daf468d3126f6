package resolve

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/fault"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vapi/library"
	"github.com/vmware/govmomi/vapi/rest"
	vapi "github.com/vmware/govmomi/vapi/vcenter"
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	vspherev1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/vsphere/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// A VM that is deployed from a content library cannot get its instance UUID in
// the same request, so if the response were lost, the machine would have a VM
// without an owner. Therefore an OVF is deployed once, into a template of
// ours, from which machines are cloned as from any other template. Its name
// follows from the item, its version and the storage. Its notes, which are
// part of the deployment, prove that it is ours. That it is a template proves
// that it is complete.

const (
	// templateItem is the type of library items that are VM templates.
	templateItem = "vm-template"
	// imageSnapshot is the snapshot of an image that linked clones share.
	imageSnapshot = "nova"
	// imageTimeout bounds the creation of an image.
	imageTimeout = 2 * time.Hour
)

// libraryKey is an item of any version.
func libraryKey(of *vspherev1.NovaVSphereLibraryItem) vspherev1.NovaVSphereLibraryItem {
	return vspherev1.NovaVSphereLibraryItem{Library: of.Library, Item: of.Item}
}

// libraryItem is an item of a content library.
type libraryItem struct {
	id, name, version string
	// vm is the VM template of the item, if the item is one.
	vm ref
}

// item resolves a library item. Its content may be replaced at any time, so it
// is read again after some time.
func (r *Cache) item(ctx context.Context, of *vspherev1.NovaVSphereLibraryItem) (libraryItem, error) {
	found, err := r.libraryItem(ctx, of)
	if err == nil && of.Version != "" && of.Version != found.version {
		r.items.drop(libraryKey(of))
		return found, hypervisor.Failure(infrav1.TemplateNotFoundReason, "the item %q of the content library %q has the version %s, not %s", of.Item, of.Library, found.version, of.Version)
	}
	return found, err
}

func (r *Cache) libraryItem(ctx context.Context, of *vspherev1.NovaVSphereLibraryItem) (libraryItem, error) {
	return r.items.get(ctx, r, libraryKey(of), func(ctx context.Context, _ *vim25.Client) (found libraryItem, err error) {
		err = r.session.CallREST(ctx, func(ctx context.Context, c *rest.Client) error {
			found, err = findItem(ctx, c, of)
			return err
		})
		return found, vcenter.ConvertRESTError(err)
	})
}

func findItem(ctx context.Context, c *rest.Client, of *vspherev1.NovaVSphereLibraryItem) (libraryItem, error) {
	m := library.NewManager(c)
	libraries, err := m.FindLibrary(ctx, library.Find{Name: of.Library})
	if err != nil {
		return libraryItem{}, err
	}
	if len(libraries) != 1 {
		return libraryItem{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "%d content libraries are called %q, not one, or the account cannot see it", len(libraries), of.Library)
	}
	items, err := m.FindLibraryItems(ctx, library.FindItem{LibraryID: libraries[0], Name: of.Item})
	if err != nil {
		return libraryItem{}, err
	}
	if len(items) != 1 {
		return libraryItem{}, hypervisor.Failure(infrav1.TemplateNotFoundReason, "%d items of the content library %q are called %q, not one", len(items), of.Library, of.Item)
	}
	item, err := m.GetLibraryItem(ctx, items[0])
	if err != nil {
		return libraryItem{}, err
	}
	found := libraryItem{id: item.ID, name: item.Name, version: cmp.Or(item.ContentVersion, item.Version)}
	switch item.Type {
	case library.ItemTypeOVF:
	case templateItem:
		info, err := vapi.NewManager(c).GetLibraryTemplateInfo(ctx, item.ID)
		if err != nil {
			return found, err
		}
		found.vm = ref{Type: "VirtualMachine", Value: info.VmTemplate}
	default:
		return found, hypervisor.Failure(infrav1.InvalidSpecReason, "the item %q of the content library %q is of the type %q: only OVF templates and VM templates can be cloned", of.Item, of.Library, item.Type)
	}
	return found, nil
}

// image is a template that is created from a library item.
type image struct {
	item   libraryItem
	target *Placement
	name   string
	// failures counts the failed creations.
	failures int
}

// newImage names the image of an item in a placement.
func newImage(item libraryItem, target *Placement) image {
	sum := sha256.Sum256([]byte(strings.Join([]string{item.id, item.version, target.storage.key()}, "\x00")))
	name := item.name
	if len(name) > 50 {
		name = name[:50]
	}
	return image{item: item, target: target, name: "nova-image-" + name + "-" + hex.EncodeToString(sum[:5])}
}

// key identifies a storage.
func (s *storage) key() string {
	return cmp.Or(s.datastore.Value, s.pod.Value, s.policy) + "\x00" + s.policy
}

// ownerNote is in the notes of an image, and proves that the image is ours.
func (i *image) ownerNote() string { return "Image of Cluster API machines: " + i.name }

// imageKey is the folder and the name of an image.
type imageKey struct {
	folder ref
	name   string
}

// imageState is the progress of an image.
type imageState struct {
	vm ref
	// template is set once the image can be cloned.
	template *spec.Template
}

// image finds an image. The result is kept once the image can be cloned.
func (r *Cache) image(ctx context.Context, i *image) (imageState, error) {
	key := imageKey{i.target.Folder, i.name}
	found, err := r.imageStates.get(ctx, r, key, func(ctx context.Context, c *vim25.Client) (imageState, error) { return findImage(ctx, c, i) })
	if found.template == nil {
		r.imageStates.drop(key)
	}
	return found, err
}

func findImage(ctx context.Context, c *vim25.Client, i *image) (imageState, error) {
	res, err := methods.FindChild(ctx, c, &types.FindChild{This: *c.ServiceContent.SearchIndex, Entity: i.target.Folder, Name: i.name})
	if err != nil || res.Returnval == nil {
		return imageState{}, err
	}
	state := imageState{vm: *res.Returnval}
	var vm mo.VirtualMachine
	if err := object.NewCommon(c, state.vm).Properties(ctx, state.vm, []string{"config.annotation", "config.template"}, &vm); err != nil {
		return imageState{}, err
	}
	if vm.Config == nil {
		return state, nil
	}
	if !strings.Contains(vm.Config.Annotation, i.ownerNote()) {
		return imageState{}, hypervisor.Failure(infrav1.NameConflictReason, "a VM named %s exists in the folder and is not the image with this name: rename or delete it in vCenter", i.name)
	}
	if vm.Config.Template {
		state.template, err = readTemplate(ctx, c, state.vm)
	}
	return state, err
}

// images are the images that are being created.
type images struct {
	mu   sync.Mutex
	jobs map[imageKey]*imageJob
	// failures counts the failed creations of images that do not exist. It does
	// not survive a restart.
	failures map[imageKey]int
}

// imageJob is the creation of an image.
type imageJob struct {
	waiting map[hypervisor.Key]struct{}
	// failed is the error with which it ended, until a machine has received it.
	failed error
}

// ensure starts the creation of an image unless it is under way, and calls
// notify for key once it has ended. Its error is returned once. create receives
// the number of failures before.
func (i *images) ensure(name imageKey, key hypervisor.Key, notify func(hypervisor.Key), create func(failures int) error) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	job := i.jobs[name]
	if job != nil && job.failed != nil {
		delete(i.jobs, name)
		return job.failed
	}
	if job != nil {
		job.waiting[key] = struct{}{}
		return nil
	}
	job = &imageJob{waiting: map[hypervisor.Key]struct{}{key: {}}}
	if i.jobs == nil {
		i.jobs, i.failures = map[imageKey]*imageJob{}, map[imageKey]int{}
	}
	i.jobs[name] = job
	failures := i.failures[name]
	go func() {
		err := create(failures)
		i.mu.Lock()
		defer i.mu.Unlock()
		if job.failed = err; err == nil {
			delete(i.jobs, name)
			delete(i.failures, name)
		} else {
			i.failures[name]++
		}
		for key := range job.waiting {
			notify(key)
		}
	}()
	return nil
}

// createImage creates an image, and continues after an earlier attempt.
func (r *Cache) createImage(i *image) error {
	ctx, cancel := context.WithTimeout(context.Background(), imageTimeout)
	defer cancel()
	go func() {
		select {
		case <-r.session.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		state, err := r.image(ctx, i)
		switch {
		case err != nil || state.template != nil:
			return err
		case state.vm == (ref{}):
			err = r.deploy(ctx, i)
		default:
			err = r.convertToTemplate(ctx, state.vm)
		}
		if err != nil && !isInProgress(err) {
			return vcenter.Classify(r.session.Server(), err)
		}
		if err != nil {
			// Another manager creates the image, or vCenter still does since an
			// earlier attempt.
			select {
			case <-time.After(r.retryInterval):
			case <-ctx.Done():
				return vcenter.Classify(r.session.Server(), ctx.Err())
			}
		}
	}
}

// isInProgress reports whether an operation failed because the same operation
// is under way.
func isInProgress(err error) bool {
	return fault.Is(err, &types.DuplicateName{}) || fault.Is(err, &types.TaskInProgress{}) ||
		fault.Is(err, &types.InvalidState{}) || fault.Is(err, &types.MethodDisabled{}) || errors.Is(err, errInProgress)
}

var errInProgress = errors.New("the operation is in progress in vCenter")

// deploy creates the VM of an image.
func (r *Cache) deploy(ctx context.Context, i *image) error {
	datastore, err := r.imageDatastore(ctx, &i.target.storage)
	if err != nil {
		return err
	}
	spec := vapi.Deploy{
		DeploymentSpec: vapi.DeploymentSpec{
			Name: i.name, Annotation: i.ownerNote() + ". Do not change it; it can be deleted when no machine needs it any more.",
			AcceptAllEULA: true, StorageProvisioning: "thin", StorageProfileID: i.target.storage.policy, DefaultDatastoreID: datastore.Value,
		},
		Target: vapi.Target{ResourcePoolID: i.target.Pool.Value, FolderID: i.target.Folder.Value},
	}
	if host := i.target.hostAt(i.failures); host != nil {
		spec.HostID = host.Value
	}
	err = r.session.CallREST(vcenter.WithRequestTimeout(ctx, imageTimeout), func(ctx context.Context, c *rest.Client) error {
		_, err := vapi.NewManager(c).DeployLibraryItem(ctx, i.item.id, spec)
		return err
	})
	if failed, ok := errors.AsType[*vapi.DeploymentError](err); ok {
		return hypervisor.Failure(infrav1.HypervisorErrorReason, "deploying the library item %q: %s", i.item.name, strings.TrimPrefix(failed.Error(), "deploy error: "))
	}
	if f, ok := errors.AsType[*vcenter.RESTError](err); ok && strings.Contains(f.Kind, "already_exists") {
		return errInProgress
	}
	return vcenter.ConvertRESTError(err)
}

// imageDatastore chooses the datastore of an image.
func (r *Cache) imageDatastore(ctx context.Context, on *storage) (ref, error) {
	switch {
	case on.candidates != nil:
		return on.candidates.pick(0, on.allowed), nil
	case on.pod == (ref{}):
		return on.datastore, nil
	}
	var best ref
	err := r.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		var pod mo.StoragePod
		if err := object.NewCommon(c, on.pod).Properties(ctx, on.pod, []string{"childEntity"}, &pod); err != nil {
			return err
		}
		free, err := freeSpaceOf(ctx, c, pod.ChildEntity)
		best = (&datastoreCandidates{free: free}).pick(0, nil)
		return err
	})
	if err == nil && best == (ref{}) {
		err = hypervisor.Failure(infrav1.InsufficientResourcesReason, "no datastore of the datastore cluster can be used")
	}
	return best, err
}

// convertToTemplate converts a deployed VM to the template from which VMs are
// cloned.
func (r *Cache) convertToTemplate(ctx context.Context, at ref) error {
	return r.session.Call(ctx, func(ctx context.Context, c *vim25.Client) error {
		var vm mo.VirtualMachine
		if err := object.NewCommon(c, at).Properties(ctx, at, []string{"snapshot", "disabledMethod"}, &vm); err != nil {
			return err
		}
		if slices.Contains(vm.DisabledMethod, "CreateSnapshot_Task") || slices.Contains(vm.DisabledMethod, "MarkAsTemplate") {
			return errInProgress
		}
		if vm.Snapshot == nil {
			task, err := methods.CreateSnapshot_Task(ctx, c, &types.CreateSnapshot_Task{This: at, Name: imageSnapshot, Description: "Shared by linked clones"})
			if err != nil {
				return err
			}
			if err := object.NewTask(c, task.Returnval).Wait(ctx); err != nil {
				return err
			}
		}
		_, err := methods.MarkAsTemplate(ctx, c, &types.MarkAsTemplate{This: at})
		return err
	})
}
