package vsphere

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/vmware/govmomi/vapi/rest"
	"github.com/vmware/govmomi/vapi/tags"
	"github.com/vmware/govmomi/vim25/mo"
	"k8s.io/apimachinery/pkg/util/sets"

	infrav1 "github.com/nova-platform/cluster-api-provider-nova/api/infrastructure/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/spec"
	"github.com/nova-platform/cluster-api-provider-nova/providers/vsphere/vcenter"
)

// localState is the state of a machine's VM that the stream does not report.
type localState struct {
	// ruleLeft means that the rule was changed for the deletion of the VM.
	ruleLeft bool
	// tags is the state of its tags; nil until they were read.
	tags *tagState
	// newVM is the VM that this process has created for it and that has no tags
	// yet.
	newVM ref
	// shutdownAt is when a shutdown of the guest was last requested.
	shutdownAt time.Time
	// deleted means that vCenter has confirmed that the VM is deleted.
	deleted bool
	// visibleLogin is the login with which the driver has verified that the
	// account would see the VM if it existed.
	visibleLogin int
}

// tagState has the differences between the tags of a VM and those of its
// machine.
type tagState struct {
	missing []spec.TagName
	// wrong are the IDs of tags of an earlier value of a label.
	wrong []string
	// err is the error with which reading the tags failed.
	err *hypervisor.Error
	// retryAt is when to read again after err.
	retryAt time.Time
}

// tagRetryInterval is the time after which tags that could not be read are read
// again.
const tagRetryInterval = time.Minute

// tagsOutOfSync lists the tags and attributes that are out of sync, for
// messages. It lists none before they were read: most likely they are in sync.
// The caller holds the lock.
func (i *inventory) tagsOutOfSync(m *machine, info *vmInfo) string {
	var parts []string
	if t := m.tags; t != nil && len(m.desired.Tags) > 0 {
		if t.err != nil {
			parts = append(parts, "tags: "+t.err.Error())
		}
		for _, tag := range t.missing {
			parts = append(parts, fmt.Sprintf("tag %s of category %s", tag.Name, tag.Category))
		}
		if len(t.wrong) > 0 && len(t.missing) == 0 {
			parts = append(parts, "tags of an earlier label")
		}
	}
	for _, a := range i.wrongAttributes(m, info) {
		parts = append(parts, "custom attribute "+a.Name)
	}
	return strings.Join(parts, ", ")
}

// wrongAttributes returns the attributes that do not have the requested value.
// The caller holds the lock.
func (i *inventory) wrongAttributes(m *machine, info *vmInfo) []infrav1.NovaVSphereCustomAttribute {
	if i.fields == nil {
		return nil
	}
	var wrong []infrav1.NovaVSphereCustomAttribute
	for _, a := range m.desired.Attributes {
		if field, known := i.fields[a.Name]; !known || info.attributes[field] != a.Value {
			wrong = append(wrong, a)
		}
	}
	return wrong
}

// recordNewVM records that a machine's VM was just created: it has no tags yet,
// so they need not be read. The caller holds the lock.
func (i *inventory) recordNewVM(id uuid.UUID, m *machine) {
	vm := i.objects.byID[id]
	if m.action != nil && m.action.verb == creating && m.action.task != (ref{}) {
		task := i.objects.tasks[m.action.task]
		if task != nil && task.ended() && !task.failed() && (!task.read || task.result == vm) {
			m.newVM = vm
		}
	}
	if m.tags == nil && m.newVM == vm && vm != (ref{}) {
		m.tags = &tagState{missing: m.desired.Tags}
	}
}

// tagsUnread reports whether it is not known which tags and attributes a
// machine's VM has. The caller holds the lock.
func (i *inventory) tagsUnread(m *machine) bool {
	return len(m.desired.Attributes) > 0 && i.fields == nil || len(m.desired.Tags) > 0 && m.tags == nil
}

// needsRead reports whether the tags or attributes of a machine's VM have to be
// read.
func (i *inventory) needsRead(id uuid.UUID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	if m == nil || m.deleting || i.objects.vms[i.objects.byID[id]] == nil {
		return false
	}
	if len(m.desired.Attributes) > 0 && i.fields == nil && time.Now().After(i.fieldsRetryAt) {
		return true
	}
	return len(m.desired.Tags) > 0 && (m.tags == nil || m.tags.err != nil && time.Now().After(m.tags.retryAt))
}

// tagWorker reads and sets tags and custom attributes, for many machines in the
// same requests.
type tagWorker struct {
	session *session

	mu sync.Mutex
	// reads and sets are the machines that wait.
	reads, writes map[uuid.UUID]bool
	running       bool

	// The fields below belong to the one goroutine that works: the IDs of
	// categories by name, and those of their tags.
	categories map[string]string
	tagIDs     map[string]map[string]string
}

// queueRead queues a machine whose tags and attributes are to be read.
func (k *tagWorker) queueRead(id uuid.UUID) { k.enqueue(id, false) }

// queueWrite queues a machine whose tags and attributes are to be set. The
// machine's action ends with it.
func (k *tagWorker) queueWrite(id uuid.UUID) { k.enqueue(id, true) }

func (k *tagWorker) enqueue(id uuid.UUID, write bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.reads == nil {
		k.reads, k.writes = map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	}
	if write {
		k.writes[id] = true
	} else {
		k.reads[id] = true
	}
	if !k.running {
		k.running = true
		go k.run()
	}
}

func (k *tagWorker) run() {
	for {
		open := k.session.waitFor(k.session.Timeouts.BatchDelay)
		reads, writes, more := k.takeQueued()
		switch {
		case !more:
			return
		case !open:
			k.session.inv.finish(nil, writes...)
		default:
			k.process(reads, writes)
		}
	}
}

func (k *tagWorker) takeQueued() (reads, writes []uuid.UUID, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	reads, writes = slices.Collect(maps.Keys(k.reads)), slices.Collect(maps.Keys(k.writes))
	clear(k.reads)
	clear(k.writes)
	k.running = len(reads)+len(writes) > 0
	return reads, writes, k.running
}

// maxBatch is the number of VMs in one request.
const maxBatch = 100

func (k *tagWorker) process(reads, writes []uuid.UUID) {
	for batch := range slices.Chunk(append(reads, k.session.inv.withUnknownTags(writes)...), maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		k.readTags(ctx, batch)
		cancel()
	}
	for batch := range slices.Chunk(writes, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		k.setAll(ctx, batch)
		cancel()
	}
}

// withUnknownTags returns the machines whose tags are not known.
func (i *inventory) withUnknownTags(ids []uuid.UUID) []uuid.UUID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		m := i.machines[id]
		return m == nil || m.tags != nil && m.tags.err == nil
	})
}

// taggedVM is a machine's VM and the tags of its machine.
type taggedVM struct {
	id            uuid.UUID
	vm            ref
	tags          []spec.TagName
	createMissing bool
	state         tagState
	// known means that the tags were read, or need not be.
	known bool
}

// taggedVMs returns the given machines that have tags in their spec, and
// whether any of them has attributes.
func (i *inventory) taggedVMs(ids []uuid.UUID) (out []*taggedVM, attributes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		m, vm := i.machines[id], i.objects.byID[id]
		if m == nil || vm == (ref{}) {
			continue
		}
		attributes = attributes || len(m.desired.Attributes) > 0
		if len(m.desired.Tags) > 0 {
			t := &taggedVM{id: id, vm: vm, tags: m.desired.Tags, createMissing: m.desired.CreateMissing}
			if m.tags != nil {
				t.state, t.known = *m.tags, m.tags.err == nil
			}
			out = append(out, t)
		}
	}
	return out, attributes
}

// readTags finds the tags and attributes that VMs lack.
func (k *tagWorker) readTags(ctx context.Context, ids []uuid.UUID) {
	inv := k.session.inv
	vms, attributes := inv.taggedVMs(ids)
	if attributes {
		k.ensureFields(ctx)
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
		inv.recordTags(t)
	}
}

// requestError adds the operation to an error of the REST API.
func (k *tagWorker) requestError(operation string, err error) *hypervisor.Error {
	if vcenter.RESTStatus(err) != 0 || isBatchError(err) {
		k.categories, k.tagIDs = nil, nil // a name may stand for another tag now
		return hypervisor.Failure(vcenter.RESTReason(err), "%s: %w", operation, vcenter.RootCause(err))
	}
	return vcenter.AsError(vcenter.Classify(k.session.Server(), err))
}

// recordTags records the state of the tags of a VM, unless the spec of its
// machine has changed meanwhile.
func (i *inventory) recordTags(t *taggedVM) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[t.id]
	if m == nil || !slices.Equal(m.desired.Tags, t.tags) {
		return
	}
	state := t.state
	m.tags, m.newVM = &state, ref{}
	i.notifyChanged([]uuid.UUID{t.id})
}

// compare reads the tags of VMs and records which are missing and which are
// wrong.
func (k *tagWorker) compare(ctx context.Context, api *tags.Manager, vms []*taggedVM) error {
	refs := make([]mo.Reference, 0, len(vms))
	for _, t := range vms {
		refs = append(refs, t.vm)
	}
	attached, err := api.ListAttachedTagsOnObjects(ctx, refs)
	if err != nil {
		return fmt.Errorf("listing tags of VMs: %w", err)
	}
	have := map[ref]sets.Set[string]{}
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
func (k *tagWorker) tagsOf(ctx context.Context, api *tags.Manager, category string) (map[string]string, error) {
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

// setAll attaches the tags that VMs lack and sets their attributes.
func (k *tagWorker) setAll(ctx context.Context, ids []uuid.UUID) {
	inv := k.session.inv
	failed := k.setTags(ctx, ids)
	for _, id := range ids {
		err := failed[id]
		if err == nil {
			err = k.setAttributes(ctx, id)
		}
		inv.finish(err, id)
	}
}

// setTags attaches the tags that VMs lack. It returns the errors by machine.
func (k *tagWorker) setTags(ctx context.Context, ids []uuid.UUID) map[uuid.UUID]*hypervisor.Error {
	all, _ := k.session.inv.taggedVMs(ids)
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
			k.session.inv.recordTags(t)
		}
	}
	return failed
}

// attach attaches and detaches tags of VMs, by tag or by VM, whichever takes
// fewer requests.
func (k *tagWorker) attach(ctx context.Context, api *tags.Manager, vms []*taggedVM, failed map[uuid.UUID]*hypervisor.Error) error {
	byTag, byVM := map[string][]ref{}, map[ref][]string{}
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
func (k *tagWorker) idsFor(ctx context.Context, api *tags.Manager, t *taggedVM) ([]string, error) {
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
func (k *tagWorker) create(ctx context.Context, api *tags.Manager, tag spec.TagName) (string, error) {
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
func attachToAll(ctx context.Context, api *tags.Manager, id string, vms []ref) error {
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
