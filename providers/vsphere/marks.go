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
)

// chores is the state of a machine's VM that the stream does not report.
type chores struct {
	// left means that the rule was changed for the deletion of the VM.
	left bool
	// tags is the state of its tags; nil until they were read.
	tags *tagState
	// fresh is the VM that this process has created for it and that has no tags
	// yet.
	fresh ref
	// asked is when a shutdown of the guest was last requested.
	asked time.Time
	// buried means that vCenter has confirmed that the VM is deleted.
	buried bool
	// sighted is the login with which the driver has verified that the account
	// would see the VM if it existed.
	sighted int
}

// tagState has the differences between the tags of a VM and those of its
// machine.
type tagState struct {
	missing []tagName
	// wrong are the IDs of tags of an earlier value of a label.
	wrong []string
	// err is the error with which reading the tags failed.
	err *hypervisor.Error
	// again is when to read again after err.
	again time.Time
}

// lookAgain is the time after which tags that could not be read are read
// again.
const lookAgain = time.Minute

// marksDue lists the tags and attributes that are out of sync, for messages.
// It lists none before they were read: most likely they are in sync. The
// caller holds the lock.
func (i *inventory) marksDue(m *machine, info *vmInfo) string {
	var due []string
	if t := m.tags; t != nil && len(m.wants.tags) > 0 {
		if t.err != nil {
			due = append(due, "tags: "+t.err.Error())
		}
		for _, tag := range t.missing {
			due = append(due, fmt.Sprintf("tag %s of category %s", tag.name, tag.category))
		}
		if len(t.wrong) > 0 && len(t.missing) == 0 {
			due = append(due, "tags of an earlier label")
		}
	}
	for _, a := range i.wrongAttributes(m, info) {
		due = append(due, "custom attribute "+a.Name)
	}
	return strings.Join(due, ", ")
}

// wrongAttributes returns the attributes that do not have the requested value.
// The caller holds the lock.
func (i *inventory) wrongAttributes(m *machine, info *vmInfo) []infrav1.NovaVSphereCustomAttribute {
	if i.fields == nil {
		return nil
	}
	var wrong []infrav1.NovaVSphereCustomAttribute
	for _, a := range m.wants.attributes {
		if field, known := i.fields[a.Name]; !known || info.attributes[field] != a.Value {
			wrong = append(wrong, a)
		}
	}
	return wrong
}

// freshen records that a machine's VM was just created: it has no tags yet, so
// they need not be read. The caller holds the lock.
func (i *inventory) freshen(id uuid.UUID, m *machine) {
	vm := i.world.byID[id]
	if m.act != nil && m.act.verb == creating && m.act.task != (ref{}) {
		task := i.world.tasks[m.act.task]
		if task != nil && task.ended() && !task.failed() && (!task.read || task.result == vm) {
			m.fresh = vm
		}
	}
	if m.tags == nil && m.fresh == vm && vm != (ref{}) {
		m.tags = &tagState{missing: m.wants.tags}
	}
}

// unlooked reports whether the tags or attributes of a machine's VM have to be
// read.
func (i *inventory) unlooked(id uuid.UUID) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[id]
	if m == nil || m.going || i.world.vms[i.world.byID[id]] == nil {
		return false
	}
	if len(m.wants.attributes) > 0 && i.fields == nil && time.Now().After(i.fieldsAgain) {
		return true
	}
	return len(m.wants.tags) > 0 && (m.tags == nil || m.tags.err != nil && time.Now().After(m.tags.again))
}

// marker reads and sets tags and custom attributes, for many machines in the
// same requests.
type marker struct {
	session *session

	mu sync.Mutex
	// looks and sets are the machines that wait.
	looks, sets map[uuid.UUID]bool
	running     bool

	// The fields below belong to the one goroutine that works: the IDs of
	// categories by name, and those of their tags.
	categories map[string]string
	known      map[string]map[string]string
}

// look queues a machine whose tags and attributes are to be read.
func (k *marker) look(id uuid.UUID) { k.join(id, false) }

// set queues a machine whose tags and attributes are to be set. The machine's
// action ends with it.
func (k *marker) set(id uuid.UUID) { k.join(id, true) }

func (k *marker) join(id uuid.UUID, set bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.looks == nil {
		k.looks, k.sets = map[uuid.UUID]bool{}, map[uuid.UUID]bool{}
	}
	if set {
		k.sets[id] = true
	} else {
		k.looks[id] = true
	}
	if !k.running {
		k.running = true
		go k.work()
	}
}

func (k *marker) work() {
	for {
		open := k.session.waitFor(k.session.conn.timeouts.batchDelay)
		looks, sets, more := k.next()
		switch {
		case !more:
			return
		case !open:
			k.session.inv.finish(nil, sets...)
		default:
			k.do(looks, sets)
		}
	}
}

func (k *marker) next() (looks, sets []uuid.UUID, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	looks, sets = slices.Collect(maps.Keys(k.looks)), slices.Collect(maps.Keys(k.sets))
	clear(k.looks)
	clear(k.sets)
	k.running = len(looks)+len(sets) > 0
	return looks, sets, k.running
}

// maxBatch is the number of VMs in one request.
const maxBatch = 100

func (k *marker) do(looks, sets []uuid.UUID) {
	for batch := range slices.Chunk(append(looks, k.session.inv.unread(sets)...), maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		k.lookAt(ctx, batch)
		cancel()
	}
	for batch := range slices.Chunk(sets, maxBatch) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		k.setAll(ctx, batch)
		cancel()
	}
}

// unread returns the machines whose tags are not known.
func (i *inventory) unread(ids []uuid.UUID) []uuid.UUID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		m := i.machines[id]
		return m == nil || m.tags != nil && m.tags.err == nil
	})
}

// tagged is a machine's VM and the tags of its machine.
type tagged struct {
	id          uuid.UUID
	vm          ref
	tags        []tagName
	makeMissing bool
	state       tagState
	// known means that the tags were read, or need not be.
	known bool
}

// tagged returns the given machines that have tags in their spec, and whether
// any of them has attributes.
func (i *inventory) tagged(ids []uuid.UUID) (out []*tagged, attributes bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, id := range ids {
		m, vm := i.machines[id], i.world.byID[id]
		if m == nil || vm == (ref{}) {
			continue
		}
		attributes = attributes || len(m.wants.attributes) > 0
		if len(m.wants.tags) > 0 {
			t := &tagged{id: id, vm: vm, tags: m.wants.tags, makeMissing: m.wants.makeMissing}
			if m.tags != nil {
				t.state, t.known = *m.tags, m.tags.err == nil
			}
			out = append(out, t)
		}
	}
	return out, attributes
}

// lookAt finds the tags and attributes that VMs lack.
func (k *marker) lookAt(ctx context.Context, ids []uuid.UUID) {
	inv := k.session.inv
	vms, attributes := inv.tagged(ids)
	if attributes {
		k.learnFields(ctx)
	}
	vms = slices.DeleteFunc(vms, func(t *tagged) bool { return t.known })
	if len(vms) == 0 {
		return
	}
	err := k.session.callREST(ctx, func(ctx context.Context, api *rest.Client) error {
		return k.compare(ctx, tags.NewManager(api), vms)
	})
	for _, t := range vms {
		if err != nil {
			t.state = tagState{err: k.refused("reading tags", err), again: time.Now().Add(lookAgain)}
		}
		inv.noteTags(t)
	}
}

// refused adds the operation to an error of the REST API.
func (k *marker) refused(doing string, err error) *hypervisor.Error {
	if restStatus(err) != 0 || isBatchError(err) {
		k.categories, k.known = nil, nil // a name may stand for another tag now
		return failure(restReason(err), "%s: %w", doing, rootCause(err))
	}
	return asError(classify(k.session.endpoint.server, err))
}

// noteTags records the state of the tags of a VM, unless the spec of its
// machine has changed meanwhile.
func (i *inventory) noteTags(t *tagged) {
	i.mu.Lock()
	defer i.mu.Unlock()
	m := i.machines[t.id]
	if m == nil || !slices.Equal(m.wants.tags, t.tags) {
		return
	}
	state := t.state
	m.tags, m.fresh = &state, ref{}
	i.tell([]uuid.UUID{t.id})
}

// compare reads the tags of VMs and records which are missing and which are
// wrong.
func (k *marker) compare(ctx context.Context, api *tags.Manager, vms []*tagged) error {
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
			known, err := k.tagsOf(ctx, api, tag.category)
			if err != nil {
				return err
			}
			wanted := known[tag.name]
			if wanted == "" || !have[t.vm].Has(wanted) {
				t.state.missing = append(t.state.missing, tag)
			}
			for _, id := range known {
				if tag.label && id != wanted && have[t.vm].Has(id) {
					t.state.wrong = append(t.state.wrong, id)
				}
			}
		}
	}
	return nil
}

// tagsOf returns the IDs of the tags of a category by their names; none if the
// category does not exist. They are read once.
func (k *marker) tagsOf(ctx context.Context, api *tags.Manager, category string) (map[string]string, error) {
	if known, ok := k.known[category]; ok {
		return known, nil
	}
	if k.categories == nil {
		all, err := api.GetCategories(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing categories: %w", err)
		}
		k.categories, k.known = map[string]string{}, map[string]map[string]string{}
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
	k.known[category] = known
	return known, nil
}

// setAll attaches the tags that VMs lack and sets their attributes.
func (k *marker) setAll(ctx context.Context, ids []uuid.UUID) {
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
func (k *marker) setTags(ctx context.Context, ids []uuid.UUID) map[uuid.UUID]*hypervisor.Error {
	all, _ := k.session.inv.tagged(ids)
	failed := map[uuid.UUID]*hypervisor.Error{}
	var vms []*tagged
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
	lacking := map[uuid.UUID]*hypervisor.Error{}
	err := k.session.callREST(ctx, func(ctx context.Context, api *rest.Client) error {
		return k.attach(ctx, tags.NewManager(api), vms, lacking)
	})
	if len(lacking) > 0 {
		k.categories, k.known = nil, nil // another client may create them meanwhile
	}
	for _, t := range vms {
		switch {
		case err != nil:
			failed[t.id] = k.refused("attaching tags", err)
		case lacking[t.id] != nil:
			failed[t.id] = lacking[t.id]
		default:
			t.state = tagState{}
			k.session.inv.noteTags(t)
		}
	}
	return failed
}

// attach attaches and detaches tags of VMs, by tag or by VM, whichever takes
// fewer requests.
func (k *marker) attach(ctx context.Context, api *tags.Manager, vms []*tagged, lacking map[uuid.UUID]*hypervisor.Error) error {
	byTag, byVM := map[string][]ref{}, map[ref][]string{}
	for _, t := range vms {
		ids, err := k.idsFor(ctx, api, t)
		if e := asError(err); e != nil {
			lacking[t.id] = e
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
func (k *marker) idsFor(ctx context.Context, api *tags.Manager, t *tagged) ([]string, error) {
	var ids []string
	for _, tag := range t.state.missing {
		known, err := k.tagsOf(ctx, api, tag.category)
		if err != nil {
			return nil, err
		}
		id := known[tag.name]
		if id == "" {
			if !t.makeMissing {
				return nil, failure(infrav1.InvalidSpecReason,
					"vCenter has no tag %q of the category %q, or the account cannot see it: make it, or set spec.createMissingTags to true", tag.name, tag.category)
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
func (k *marker) create(ctx context.Context, api *tags.Manager, tag tagName) (string, error) {
	category := k.categories[tag.category]
	if category == "" {
		cardinality := "MULTIPLE"
		if tag.label {
			cardinality = "SINGLE"
		}
		id, err := api.CreateCategory(ctx, &tags.Category{
			Name: tag.category, Description: "Made for machines of Cluster API", Cardinality: cardinality,
			AssociableTypes: []string{"VirtualMachine"},
		})
		if err != nil {
			return "", fmt.Errorf("creating category %s: %w", tag.category, err)
		}
		category = id
		k.categories[tag.category], k.known[tag.category] = id, map[string]string{}
	}
	id, err := api.CreateTag(ctx, &tags.Tag{Name: tag.name, CategoryID: category, Description: "Made for machines of Cluster API"})
	if err != nil {
		return "", fmt.Errorf("creating tag %s of category %s: %w", tag.name, tag.category, err)
	}
	k.known[tag.category][tag.name] = id
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
	if err := api.Do(ctx, action.Request(http.MethodPost, spec), &res); err != nil && !isEmptyAnswer(err) {
		return fmt.Errorf("attaching a tag: %w", err)
	}
	if res.Success != nil && !*res.Success {
		var words batchError
		for _, e := range res.Errors {
			words = append(words, strings.TrimRight(e.Message, ". "))
		}
		return words
	}
	return nil
}

// isEmptyAnswer reports whether vCenter executed the request and returned an
// empty body: not every version returns the result of each part.
func isEmptyAnswer(err error) bool {
	_, onTheWay := errors.AsType[*url.Error](err)
	return errors.Is(err, io.EOF) && !onTheWay
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
