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

// chores is what is known of a machine's VM beside the stream.
type chores struct {
	// left means that its rule was seen to before the VM goes.
	left bool
	// tags is how its tags are; nil while nobody has looked.
	tags *tagState
	// fresh is the VM that this process has made for it and given no tags yet.
	fresh ref
	// asked is when the guest was asked to power itself off.
	asked time.Time
	// buried means that vCenter has said that its VM is no more.
	buried bool
	// sighted is the login over which it was made sure that its VM would be
	// seen if it were there.
	sighted int
}

// tagState is how the tags of a VM differ from what its machine asks for.
type tagState struct {
	missing []tagName
	// wrong are the IDs of tags of an earlier value of a label.
	wrong []string
	// err is why nobody knows.
	err *hypervisor.Error
	// again is when to look again after err.
	again time.Time
}

// lookAgain is how soon tags that could not be read are read again.
const lookAgain = time.Minute

// marksDue says for people which tags and attributes are not as asked. Before
// they were looked at, nothing is said: they most likely are. The caller holds
// the lock.
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

// wrongAttributes are the attributes that have not the value asked for. The
// caller holds the lock.
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

// freshen notes that a machine's VM was made just now: until it is given tags
// it has none, so nobody has to look. The caller holds the lock.
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

// unlooked reports whether somebody has to look at a machine's marks.
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

// marker looks at tags and custom attributes and sets them, those of many
// machines in the same requests.
type marker struct {
	session *session

	mu sync.Mutex
	// looks and sets are the machines that wait.
	looks, sets map[uuid.UUID]bool
	running     bool

	// What follows belongs to the one goroutine that works: the IDs of
	// categories by name, and of their tags.
	categories map[string]string
	known      map[string]map[string]string
}

// look has the marks of a machine looked at.
func (k *marker) look(id uuid.UUID) { k.join(id, false) }

// set has them set. The machine's action ends with it.
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
		open := k.session.pause(k.session.line.pace.gather)
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

// maxBatch is how many VMs one request is about.
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

// unread returns the machines of whose tags nobody knows.
func (i *inventory) unread(ids []uuid.UUID) []uuid.UUID {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(ids), func(id uuid.UUID) bool {
		m := i.machines[id]
		return m == nil || m.tags != nil && m.tags.err == nil
	})
}

// tagged is a machine's VM and the tags it asks for.
type tagged struct {
	id          uuid.UUID
	vm          ref
	tags        []tagName
	makeMissing bool
	state       tagState
	// known means that somebody has looked, or need not.
	known bool
}

// tagged returns those of machines that ask for tags, and whether any asks for
// attributes.
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

// lookAt finds out which tags and attributes VMs lack.
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

// refused makes an error of the REST API one that says what it was about.
func (k *marker) refused(doing string, err error) *hypervisor.Error {
	if restStatus(err) != 0 || isBatchError(err) {
		k.categories, k.known = nil, nil // a name may stand for another tag now
		return failure(restReason(err), "%s: %w", doing, innermost(err))
	}
	return asError(classify(k.session.endpoint.server, err))
}

// noteTags notes how the tags of a VM are, unless the machine asks for others
// by now.
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

// compare reads the tags of VMs and notes what is missing and what is wrong.
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

// tagsOf returns the IDs of the tags of a category by their names; none if
// there is no such category. They are read once.
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

// setAll attaches what VMs lack and sets their attributes.
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

// setTags attaches the tags VMs lack. It returns how it failed, by machine.
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
		k.categories, k.known = nil, nil // somebody may make them meanwhile
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

// attach makes the tags of VMs what they should be: by tag or by VM, whichever
// takes fewer requests.
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

// idsFor returns the IDs of the tags a VM lacks. A tag that does not exist is
// made if the machine asks for that.
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

// create makes a tag, and its category if that is missing too.
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

// isEmptyAnswer reports that vCenter did as asked and said nothing: not every
// version sends the result of each part.
func isEmptyAnswer(err error) bool {
	_, onTheWay := errors.AsType[*url.Error](err)
	return errors.Is(err, io.EOF) && !onTheWay
}

// batchError is what vCenter says of the parts of a request that failed.
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
