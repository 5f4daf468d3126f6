package parts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/sets"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/cache"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/inventory"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// tagRetryInterval is the time after which tags that could not be read are read
// again.
const tagRetryInterval = time.Minute

// maxBatch is the number of VMs in one request.
const maxBatch = 100

// TagWorker reads and sets tags and custom attributes, for many machines in the
// same requests.
type TagWorker struct {
	session Session
	inv     *inventory.Inventory
	queue   batches[struct{}, tagJob]
	State   tagStates

	// The fields below belong to the one goroutine that works: the IDs of
	// categories by name, and those of their tags.
	categories map[string]string
	tagIDs     map[string]map[string]string
}

// tagJob is a machine whose tags and attributes are to be read or set.
type tagJob struct {
	id  uuid.UUID
	set bool
}

// NewTagWorker returns the worker of a session that collects changes for a delay.
func NewTagWorker(s Session, inv *inventory.Inventory, delay time.Duration) *TagWorker {
	w := &TagWorker{session: s, inv: inv, State: tagStates{machines: map[uuid.UUID]*taggedMachine{}}}
	w.queue = batches[struct{}, tagJob]{
		delay: delay, done: func() <-chan struct{} { return s.Done() },
		process: func(_ struct{}, jobs []tagJob) { w.process(split(jobs)) },
		drop: func(_ struct{}, jobs []tagJob) {
			_, writes := split(jobs)
			w.inv.Finish(nil, writes...)
		},
	}
	return w
}

// split returns the machines that are to be read, and those to be set.
func split(jobs []tagJob) (reads, writes []uuid.UUID) {
	for _, job := range jobs {
		if job.set {
			writes = append(writes, job.id)
		} else {
			reads = append(reads, job.id)
		}
	}
	return reads, writes
}

// Sync starts to set the tags and attributes of a machine.
func (k *TagWorker) Sync(id uuid.UUID, key hypervisor.Key) {
	if vm, _ := k.inv.BeginSync(id, key, inventory.SyncTags, "Setting tags and custom attributes"); vm != (types.ManagedObjectReference{}) {
		k.queue.add(struct{}{}, tagJob{id: id, set: true})
	}
}

// Refresh starts to read the tags and attributes of a machine if that is
// necessary.
func (k *TagWorker) Refresh(id uuid.UUID) {
	if k.NeedsRead(id) {
		k.queue.add(struct{}{}, tagJob{id: id})
	}
}

// NeedsRead reports whether the tags or attributes of a machine's VM have to be
// read.
func (k *TagWorker) NeedsRead(id uuid.UUID) (due bool) {
	k.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		due = k.State.needsRead(o, id)
		return nil
	})
	return due
}

func (k *TagWorker) process(reads, writes []uuid.UUID) {
	k.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		for _, id := range writes {
			if k.State.unread(o, id) {
				reads = append(reads, id)
			}
		}
		return nil
	})
	for batch := range slices.Chunk(reads, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		k.read(ctx, batch)
		cancel()
	}
	for batch := range slices.Chunk(writes, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		k.set(ctx, batch)
		cancel()
	}
}

// vmsOf returns the VMs of machines that have tags, and whether a machine has
// attributes whose keys are not known.
func (k *TagWorker) vmsOf(ids []uuid.UUID) (vms []*taggedVM, fields bool) {
	k.inv.Locked(func(o *cache.Objects) []uuid.UUID {
		for _, id := range ids {
			m, vm := k.State.machines[id], o.ByID[id]
			if m == nil || vm == (types.ManagedObjectReference{}) {
				continue
			}
			fields = fields || len(m.attributes) > 0 && k.State.fields == nil
			if len(m.tags) > 0 {
				vms = append(vms, m.at(id, vm))
			}
		}
		return nil
	})
	return vms, fields
}

// read finds the tags and attributes that VMs lack.
func (k *TagWorker) read(ctx context.Context, ids []uuid.UUID) {
	vms, fields := k.vmsOf(ids)
	if fields {
		k.readFields(ctx)
	}
	vms = slices.DeleteFunc(vms, func(t *taggedVM) bool { return t.known })
	if len(vms) == 0 {
		return
	}
	err := k.session.CallREST(ctx, func(ctx context.Context, api *rest.Client) error {
		return k.compare(ctx, tags.NewManager(api), vms)
	})
	for _, t := range vms {
		if err != nil {
			t.state = tagState{err: k.requestError("reading tags", err), retryAt: time.Now().Add(tagRetryInterval)}
		}
		k.record(t)
	}
}

// record records the state of the tags of a VM.
func (k *TagWorker) record(t *taggedVM) {
	k.inv.Locked(func(*cache.Objects) []uuid.UUID {
		k.State.record(t)
		return []uuid.UUID{t.id}
	})
}

// requestError adds the operation to an error of the REST API.
func (k *TagWorker) requestError(operation string, err error) *hypervisor.Error {
	if vcenter.RESTStatus(err) != 0 || isBatchError(err) {
		k.categories, k.tagIDs = nil, nil // a name may stand for another tag now
		return hypervisor.Failure(vcenter.RESTReason(err), "%s: %w", operation, vcenter.RootCause(err))
	}
	return vcenter.AsError(vcenter.Classify(k.session.Server(), err))
}

// compare reads the tags of VMs and records which are missing and which are
// wrong.
func (k *TagWorker) compare(ctx context.Context, api *tags.Manager, vms []*taggedVM) error {
	refs := make([]mo.Reference, 0, len(vms))
	for _, t := range vms {
		refs = append(refs, t.vm)
	}
	attached, err := api.ListAttachedTagsOnObjects(ctx, refs)
	if err != nil {
		return fmt.Errorf("listing tags of VMs: %w", err)
	}
	have := map[types.ManagedObjectReference]sets.Set[string]{}
	for _, a := range attached {
		have[a.ObjectID.Reference()] = sets.New(a.TagIDs...)
	}
	for _, t := range vms {
		t.state = tagState{}
		for _, tag := range t.tags {
			known, err := k.tagsOf(ctx, api, tag.Category)
			if err != nil {
				return err
			}
			wanted := known[tag.Name]
			if wanted == "" || !have[t.vm].Has(wanted) {
				t.state.missing = append(t.state.missing, tag)
			}
			for _, id := range known {
				if tag.Label && id != wanted && have[t.vm].Has(id) {
					t.state.wrong = append(t.state.wrong, id)
				}
			}
		}
	}
	return nil
}

// tagsOf returns the IDs of the tags of a category by their names; none if the
// category does not exist. They are read once.
func (k *TagWorker) tagsOf(ctx context.Context, api *tags.Manager, category string) (map[string]string, error) {
	if known, ok := k.tagIDs[category]; ok {
		return known, nil
	}
	if k.categories == nil {
		all, err := api.GetCategories(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing categories: %w", err)
		}
		k.categories, k.tagIDs = map[string]string{}, map[string]map[string]string{}
		for _, c := range all {
			k.categories[c.Name] = c.ID
		}
	}
	id, ok := k.categories[category]
	if !ok {
		return map[string]string{}, nil
	}
	all, err := api.GetTagsForCategory(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("listing tags of category %s: %w", category, err)
	}
	known := map[string]string{}
	for _, tag := range all {
		known[tag.Name] = tag.ID
	}
	k.tagIDs[category] = known
	return known, nil
}

// set attaches the tags that VMs lack and sets their attributes.
func (k *TagWorker) set(ctx context.Context, ids []uuid.UUID) {
	failed := k.setTags(ctx, ids)
	for _, id := range ids {
		err := failed[id]
		if err == nil {
			err = k.setAttributes(ctx, id)
		}
		k.inv.Finish(err, id)
	}
}

// setTags attaches the tags that VMs lack. It returns the errors by machine.
func (k *TagWorker) setTags(ctx context.Context, ids []uuid.UUID) map[uuid.UUID]*hypervisor.Error {
	all, _ := k.vmsOf(ids)
	failed := map[uuid.UUID]*hypervisor.Error{}
	var vms []*taggedVM
	for _, t := range all {
		switch {
		case t.state.err != nil:
			failed[t.id] = t.state.err
		case len(t.state.missing)+len(t.state.wrong) > 0:
			vms = append(vms, t)
		}
	}
	if len(vms) == 0 {
		return failed
	}
	missing := map[uuid.UUID]*hypervisor.Error{}
	err := k.session.CallREST(ctx, func(ctx context.Context, api *rest.Client) error {
		return k.attach(ctx, tags.NewManager(api), vms, missing)
	})
	if len(missing) > 0 {
		k.categories, k.tagIDs = nil, nil // another client may create them meanwhile
	}
	for _, t := range vms {
		switch {
		case err != nil:
			failed[t.id] = k.requestError("attaching tags", err)
		case missing[t.id] != nil:
			failed[t.id] = missing[t.id]
		default:
			t.state = tagState{}
			k.record(t)
		}
	}
	return failed
}

// attach attaches and detaches tags of VMs, by tag or by VM, whichever takes
// fewer requests.
func (k *TagWorker) attach(ctx context.Context, api *tags.Manager, vms []*taggedVM, failed map[uuid.UUID]*hypervisor.Error) error {
	byTag, byVM := map[string][]types.ManagedObjectReference{}, map[types.ManagedObjectReference][]string{}
	for _, t := range vms {
		ids, err := k.idsFor(ctx, api, t)
		if e := vcenter.AsError(err); e != nil {
			failed[t.id] = e
			continue
		}
		if err != nil {
			return err
		}
		if len(t.state.wrong) > 0 {
			if err := api.DetachMultipleTagsFromObject(ctx, t.state.wrong, t.vm); err != nil {
				return fmt.Errorf("detaching tags: %w", err)
			}
		}
		for _, id := range ids {
			byTag[id] = append(byTag[id], t.vm)
			byVM[t.vm] = append(byVM[t.vm], id)
		}
	}
	if len(byTag) < len(byVM) {
		for id, vms := range byTag {
			if err := attachToAll(ctx, api, id, vms); err != nil {
				return err
			}
		}
		return nil
	}
	for vm, ids := range byVM {
		if err := api.AttachMultipleTagsToObject(ctx, ids, vm); err != nil {
			return fmt.Errorf("attaching tags: %w", err)
		}
	}
	return nil
}

// idsFor returns the IDs of the tags that a VM lacks. A tag that does not
// exist is created if the machine requests that.
func (k *TagWorker) idsFor(ctx context.Context, api *tags.Manager, t *taggedVM) ([]string, error) {
	var ids []string
	for _, tag := range t.state.missing {
		known, err := k.tagsOf(ctx, api, tag.Category)
		if err != nil {
			return nil, err
		}
		id := known[tag.Name]
		if id == "" {
			if !t.createMissing {
				return nil, hypervisor.Failure(infrav1.InvalidSpecReason,
					"vCenter has no tag %q of the category %q, or the account cannot see it: create it, or set spec.createMissingTags to true", tag.Name, tag.Category)
			}
			if id, err = k.create(ctx, api, tag); err != nil {
				return nil, err
			}
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// create creates a tag, and its category if that does not exist either.
func (k *TagWorker) create(ctx context.Context, api *tags.Manager, tag spec.TagName) (string, error) {
	category := k.categories[tag.Category]
	if category == "" {
		cardinality := "MULTIPLE"
		if tag.Label {
			cardinality = "SINGLE"
		}
		id, err := api.CreateCategory(ctx, &tags.Category{
			Name: tag.Category, Description: "Created for machines of Cluster API", Cardinality: cardinality,
			AssociableTypes: []string{"VirtualMachine"},
		})
		if err != nil {
			return "", fmt.Errorf("creating category %s: %w", tag.Category, err)
		}
		category = id
		k.categories[tag.Category], k.tagIDs[tag.Category] = id, map[string]string{}
	}
	id, err := api.CreateTag(ctx, &tags.Tag{Name: tag.Name, CategoryID: category, Description: "Created for machines of Cluster API"})
	if err != nil {
		return "", fmt.Errorf("creating tag %s of category %s: %w", tag.Name, tag.Category, err)
	}
	k.tagIDs[tag.Category][tag.Name] = id
	return id, nil
}

// attachToAll attaches one tag to many VMs.
func attachToAll(ctx context.Context, api *tags.Manager, id string, vms []types.ManagedObjectReference) error {
	type object struct {
		Type  string `json:"type"`
		Value string `json:"id"`
	}
	var spec struct {
		Objects []object `json:"object_ids"`
	}
	for _, vm := range vms {
		spec.Objects = append(spec.Objects, object{vm.Type, vm.Value})
	}
	var res struct {
		Success *bool `json:"success"`
		Errors  []struct {
			Message string `json:"default_message"`
		} `json:"error_messages"`
	}
	action := api.Resource("/com/vmware/cis/tagging/tag-association").WithID(id).WithAction("attach-tag-to-multiple-objects")
	if err := api.Do(ctx, action.Request(http.MethodPost, spec), &res); err != nil && !isEmptyResponse(err) {
		return fmt.Errorf("attaching a tag: %w", err)
	}
	if res.Success != nil && !*res.Success {
		var messages batchError
		for _, e := range res.Errors {
			messages = append(messages, strings.TrimRight(e.Message, ". "))
		}
		return messages
	}
	return nil
}

// isEmptyResponse reports whether vCenter executed the request and returned an
// empty body: not every version returns the result of each part.
func isEmptyResponse(err error) bool {
	_, isTransportError := errors.AsType[*url.Error](err)
	return errors.Is(err, io.EOF) && !isTransportError
}

// batchError has the messages of the parts of a request that failed.
type batchError []string

func (b batchError) Error() string {
	if len(b) == 0 {
		return "vCenter did not attach all tags"
	}
	return strings.Join(b, "; ")
}

func isBatchError(err error) bool {
	for err != nil {
		switch err.(type) { //nolint:errorlint // unwrapped by hand: one of the types is a slice that cannot be compared
		case batchError, tags.BatchErrors:
			return true
		}
		next, ok := err.(interface{ Unwrap() error })
		if !ok {
			return false
		}
		err = next.Unwrap()
	}
	return false
}
