package ovirt

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Pace contains the poll intervals of a Mirror.
type Pace struct {
	// Rest is the interval between two lists of the VMs in the clusters of
	// known machines, and Busy the interval between two polls of VMs that are
	// being changed.
	Rest, Busy time.Duration
	// All is the interval between two lists of the VMs in all clusters.
	All time.Duration
	// Groups is the interval between two lists of affinity groups, and Detail
	// the maximum age of data that a list does not contain.
	Groups, Detail time.Duration
	// Tire is the time without a change after which a VM is no longer polled
	// more often than the others.
	Tire time.Duration
	// Slow is the interval between two polls of VMs that have not changed for
	// Soon.
	Slow, Soon time.Duration
	// Late is how long after a request without a response a VM may still
	// appear.
	Late time.Duration
}

// Usually contains the intervals outside of tests. Rest leaves a second for a
// VM that shuts down and for the list itself, so that a change is detected
// within ten seconds.
var Usually = Pace{Rest: 9 * time.Second, Busy: 1500 * time.Millisecond, All: time.Minute, Slow: 5 * time.Second, Soon: time.Minute, Groups: time.Minute, Detail: 10 * time.Minute, Tire: 10 * time.Minute, Late: 2 * timeout}

const (
	// details are the links of a VM that are followed when it is polled.
	details = "disk_attachments.disk,nics,reported_devices,tags,affinity_labels,graphics_consoles,host_devices"
	// reports are the links with the addresses of a VM. The engine queries its
	// database for each VM and link.
	reports = "nics,reported_devices"
	// batch is the number of VMs per poll request.
	batch = 40
	// page is the number of VMs per list request, and maxPages limits a list.
	page     = 500
	maxPages = 200
	// maxClusters is the maximum number of clusters in a search by name.
	maxClusters = 16
)

// Mirror caches the state of the VMs of an engine that have a subject in their
// comment. One list serves all of them; the data that it does not contain is
// read only for VMs that change, many per request.
//
// A list that was requested before the end of a write to a VM is ignored for
// that VM: it may be older than the write. A write with an unknown result keeps
// its VM busy until a later list has shown it.
type Mirror struct {
	client *Client
	pace   Pace
	// prefix starts the comments, and subjectOf parses a comment.
	prefix    string
	subjectOf func(comment string) string
	changed   func(subject string)
	began     time.Time
	// page is the number of VMs per list request.
	page int
	// names contains the names of clusters, which VMs are searched by.
	names *Directory

	mu       sync.Mutex
	lists    uint64 // number of lists that were started
	vms      map[string]*shown
	subjects map[string]*subject
	groups   map[string]map[string]*AffinityGroup // by cluster and ID
	listed   time.Time
	whole    time.Time // time of the last list of all clusters
	grouped  time.Time
	regroups uint64 // number of writes to members of groups
	wake     chan struct{}
}

// shown is the last observed state of a VM.
type shown struct {
	vm      *VM
	subject string
	// detailed is when its details were read; zero if they are outdated.
	detailed time.Time
}

// subject is the owner of a VM, such as a machine.
type subject struct {
	name string
	// busy describes the request in progress.
	busy string
	// touched is the number of lists that were started when the last write
	// ended: only later lists are valid.
	touched uint64
	doubt   bool
	// restless subjects are polled often.
	restless bool
	since    time.Time
	// looked is when a restless subject was last polled.
	looked time.Time
	// unheard is when a creation may last have been requested without a known
	// result: by a previous process, or with a lost response. It is zero once a
	// VM has been observed. An awaited subject is reported when its VM can no
	// longer appear.
	unheard time.Time
	awaited bool
}

// NewMirror returns an empty mirror. It calls changed with a subject whose VM
// changed.
func NewMirror(c *Client, p Pace, prefix string, subjectOf func(string) string, changed func(string)) *Mirror {
	return &Mirror{
		client: c, pace: p, prefix: prefix, subjectOf: subjectOf, changed: changed, began: time.Now(), page: page, names: NewDirectory(c),
		vms: map[string]*shown{}, subjects: map[string]*subject{}, groups: map[string]map[string]*AffinityGroup{},
		wake: make(chan struct{}, 1),
	}
}

// View is the known state of a subject.
type View struct {
	// VM is nil if the engine has none. It must not be changed.
	VM *VM
	// Detailed means that disks, interfaces and other details are known.
	Detailed bool
	// Busy describes the request in progress, or the request with an unknown
	// result.
	Busy string
	// Unclear contains VMs of the subject if the right one cannot be
	// identified: its ID is not known, and none or several of them have its
	// name. They are sorted by ID and must not be changed. VM is nil then.
	Unclear []*VM
}

// Look returns the state of the VM of a subject: the VM with the given ID, or,
// while the ID is not known, with the given name. A copy that a user made of
// the VM, including its comment, is another VM.
func (m *Mirror) Look(of, name, id string) View {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.subject(of)
	s.name = name
	v := View{Busy: s.busy}
	if s.doubt && v.Busy == "" {
		v.Busy = "Checking the result of the last request"
	}
	found, unclear := m.choose(of, name, id)
	v.Unclear = unclear
	if found != nil {
		s.unheard, s.awaited = time.Time{}, false
		v.VM, v.Detailed = found.vm, !found.detailed.IsZero()
		if !v.Detailed {
			s.restless, s.since = true, time.Now()
			m.kick()
		}
	}
	return v
}

// All returns the VMs of all subjects, known or not, sorted by ID. They must
// not be changed.
func (m *Mirror) All() []*VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*VM, 0, len(m.vms))
	for _, other := range m.vms {
		all = append(all, other.vm)
	}
	slices.SortFunc(all, func(a, b *VM) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// choose returns the VM of a subject, or the candidates. The caller holds the
// lock.
func (m *Mirror) choose(of, name, id string) (*shown, []*VM) {
	var named, all []*shown
	for _, other := range m.vms {
		switch {
		case other.subject != of:
		case id != "" && other.vm.ID == id:
			return other, nil
		case id == "":
			all = append(all, other)
			if other.vm.Name == name {
				named = append(named, other)
			}
		}
	}
	if len(named) == 1 {
		return named[0], nil
	}
	if len(named) > 1 {
		all = named // two data centers can have VMs of one name
	}
	unclear := make([]*VM, 0, len(all))
	for _, other := range all {
		unclear = append(unclear, other.vm)
	}
	slices.SortFunc(unclear, func(a, b *VM) int { return strings.Compare(a.ID, b.ID) })
	return nil, unclear
}

// subject returns the record of a subject. The caller holds the lock.
func (m *Mirror) subject(of string) *subject {
	s, ok := m.subjects[of]
	if !ok {
		s = &subject{since: time.Now(), unheard: m.began}
		m.subjects[of] = s
	}
	return s
}

// Rest sets whether a subject is polled often.
func (m *Mirror) Rest(of string, resting bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.subject(of)
	if s.restless == resting {
		s.restless, s.since = !resting, time.Now()
		m.kick()
	}
}

// Await reports whether a VM of a subject, which exists since a time, may have
// been requested and may still appear, although the engine does not show it. If
// so, the subject is reported when the result is known.
func (m *Mirror) Await(of string, exists time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.subject(of)
	s.awaited = mayCome(s.unheard, exists, time.Now(), m.pace.Late)
	return s.awaited
}

// mayCome reports whether a VM may still appear after a request without a known
// result. A request before the subject existed is impossible.
func mayCome(unheard, exists, now time.Time, late time.Duration) bool {
	return !unheard.IsZero() && !exists.After(unheard) && now.Before(unheard.Add(late))
}

// Subjects returns the known subjects.
func (m *Mirror) Subjects() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.subjects))
}

// Forget drops a deleted subject.
func (m *Mirror) Forget(of string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.subjects, of)
}

// Begin marks a subject as busy before a request. It returns false if another
// request is in progress.
func (m *Mirror) Begin(of, busy string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.subject(of)
	if s.busy != "" || s.doubt {
		return false
	}
	s.busy = busy
	return true
}

// End records the result of a request. If it succeeded, then updates the
// mirror.
func (m *Mirror) End(of string, err error, then func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.subject(of)
	s.busy, s.touched, s.since, s.restless = "", m.lists, time.Now(), true
	s.doubt = IsAmbiguous(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	none := true
	for _, other := range m.vms {
		if other.subject != of {
			continue
		}
		none = false
		if err != nil {
			other.detailed = time.Time{}
		}
	}
	if s.doubt && none {
		s.unheard = time.Now() // only a creation can have an unknown result here
	}
	if err == nil {
		then()
		m.changed(of)
	}
	m.kick()
}

// Put stores a VM in the state that the caller knows. It is called in then of
// End.
func (m *Mirror) Put(of string, vm VM, detailed bool) {
	at := time.Time{}
	if detailed {
		at = time.Now()
	}
	m.vms[vm.ID] = &shown{vm: &vm, subject: of, detailed: at}
}

// Drop removes a VM and its group memberships. It is called in then of End.
func (m *Mirror) Drop(id string) {
	delete(m.vms, id)
	for _, groups := range m.groups {
		for _, g := range groups {
			g.leave(id)
		}
	}
	m.grouped = time.Time{}
	m.regroups++
}

// Join adds a VM to a group. It is called in then of End.
func (m *Mirror) Join(cluster string, g AffinityGroup, id string) {
	groups, ok := m.groups[cluster]
	if !ok {
		return // read again soon
	}
	if groups[g.ID] == nil {
		groups[g.ID] = &g
	}
	groups[g.ID].join(id)
	m.regroups++
}

// Leave shows a group without a VM. It is for then of End.
func (m *Mirror) Leave(cluster, group, id string) {
	if g := m.groups[cluster][group]; g != nil {
		left := *g
		left.leave(id)
		m.groups[cluster][group] = &left
	}
	m.regroups++
}

// GroupsOf returns the groups of a cluster that a VM is in and that fit. It knows
// groups once Group has read them.
func (m *Mirror) GroupsOf(cluster, id string, fits func(*AffinityGroup) bool) []AffinityGroup {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []AffinityGroup
	for _, g := range m.groups[cluster] {
		if g.Has(id) && fits(g) {
			out = append(out, *g)
		}
	}
	return out
}

func (g *AffinityGroup) join(id string) {
	if !g.Has(id) {
		members := []Object{{ID: id}}
		if g.VMs != nil {
			members = append(slices.Clone(g.VMs.VMs), members...)
		}
		g.VMs = &Members{VMs: members}
	}
}

func (g *AffinityGroup) leave(id string) {
	if g.Has(id) {
		g.VMs = &Members{VMs: slices.DeleteFunc(slices.Clone(g.VMs.VMs), func(o Object) bool { return o.ID == id })}
	}
}

// Has reports whether a VM is in the group.
func (g *AffinityGroup) Has(id string) bool {
	return g.VMs != nil && slices.ContainsFunc(g.VMs.VMs, func(o Object) bool { return o.ID == id })
}

// Group returns an affinity group by its name, if it exists. The first call
// lists the cluster's groups.
func (m *Mirror) Group(ctx context.Context, cluster, name string) (AffinityGroup, bool, error) {
	m.mu.Lock()
	_, known := m.groups[cluster]
	m.mu.Unlock()
	if !known {
		if err := m.readGroups(ctx, cluster); err != nil {
			return AffinityGroup{}, false, err
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, g := range m.groups[cluster] {
		if g.Name == name {
			return *g, true, nil
		}
	}
	return AffinityGroup{}, false, nil
}

// Regroup invalidates the affinity groups of a cluster.
func (m *Mirror) Regroup(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, cluster)
}

func (m *Mirror) readGroups(ctx context.Context, cluster string) error {
	m.mu.Lock()
	_, known := m.groups[cluster]
	regroups := m.regroups
	m.mu.Unlock()
	var found AffinityGroups
	err := m.client.Do(ctx, Request{Method: http.MethodGet, Path: []string{"clusters", cluster, "affinitygroups"}, Into: &found})
	if err != nil {
		return fmt.Errorf("listing affinity groups: %w", err)
	}
	byID := map[string]*AffinityGroup{}
	for i := range found.Groups {
		byID[found.Groups[i].ID] = &found.Groups[i]
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if known && m.regroups != regroups {
		// The list may be older than a write in the meantime: it is read again.
		m.grouped = time.Time{}
		return nil
	}
	before := m.groups[cluster]
	m.groups[cluster] = byID
	for id, g := range byID {
		if old := before[id]; old == nil || !reflect.DeepEqual(old.VMs, g.VMs) {
			m.tellMembers(old, g)
		}
	}
	for id, g := range before {
		if byID[id] == nil {
			m.tellMembers(g)
		}
	}
	return nil
}

// tellMembers reports the subjects whose VM is in one of some groups. The
// caller holds the lock.
func (m *Mirror) tellMembers(groups ...*AffinityGroup) {
	for _, other := range m.vms {
		for _, g := range groups {
			if g != nil && g.Has(other.vm.ID) {
				m.tell(other.subject)
			}
		}
	}
}

// Empty returns the groups without members that fit, by cluster and ID.
func (m *Mirror) Empty(fits func(*AffinityGroup) bool) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string][]string{}
	for cluster, groups := range m.groups {
		for id, g := range groups {
			if g.IsEmpty() && fits(g) {
				out[cluster] = append(out[cluster], id)
			}
		}
	}
	return out
}

// IsEmpty reports whether a group has no members.
func (g *AffinityGroup) IsEmpty() bool { return g.VMs == nil || len(g.VMs.VMs) == 0 }

// Dissolve removes a deleted group.
func (m *Mirror) Dissolve(cluster, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups[cluster], id)
}

// kick triggers the next poll. The caller holds the lock or needs none.
func (m *Mirror) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// tell reports a known subject.
func (m *Mirror) tell(of string) {
	if s, ok := m.subjects[of]; ok {
		s.since = time.Now()
		m.changed(of)
	}
}

// Learn lists all VMs.
func (m *Mirror) Learn(ctx context.Context) error {
	m.mu.Lock()
	m.listed, m.whole, m.grouped = time.Time{}, time.Time{}, time.Time{}
	m.mu.Unlock()
	return m.Poll(ctx)
}

// Wait returns when the next Poll is due.
func (m *Mirror) Wait(ctx context.Context) error {
	polled := time.Now()
	for {
		pause := m.pace.Rest
		if m.anyRestless(polled) {
			pause = m.pace.Busy
		}
		timer := time.NewTimer(time.Until(polled.Add(pause)))
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
			return nil
		case <-m.wake:
			timer.Stop()
		}
	}
}

func (m *Mirror) anyRestless(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.subjects {
		if s.isRestless(now, m.pace.Tire) {
			return true
		}
	}
	return false
}

func (s *subject) isRestless(now time.Time, tire time.Duration) bool {
	return s.doubt || s.restless && now.Sub(s.since) < tire
}

// Poll sends the requests that are due: all VMs, the details of some, affinity
// groups.
func (m *Mirror) Poll(ctx context.Context) error {
	now := time.Now()
	m.mu.Lock()
	all, groups := now.Sub(m.listed) >= m.pace.Rest, now.Sub(m.grouped) >= m.pace.Groups
	m.mu.Unlock()
	if all {
		if err := m.listDue(ctx, now); err != nil {
			return err
		}
	}
	due := m.due(now)
	for _, follow := range []string{details, reports} {
		for names := range slices.Chunk(due[follow], batch) {
			if err := m.listSome(ctx, names, follow); err != nil {
				return err
			}
		}
	}
	if !groups {
		return nil
	}
	m.mu.Lock()
	m.grouped = now
	clusters := slices.Collect(maps.Keys(m.groups))
	m.mu.Unlock()
	for _, cluster := range clusters {
		if err := m.readGroups(ctx, cluster); err != nil {
			return err
		}
	}
	return nil
}

// begin counts a list.
func (m *Mirror) begin() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lists++
	return m.lists
}

func (m *Mirror) list(ctx context.Context, search, follow string, most int) ([]VM, error) {
	query := url.Values{"search": {search}}
	if follow != "" {
		query.Set("follow", follow)
	}
	if most > 0 && !m.client.endpoint.Filter {
		query.Set("max", strconv.Itoa(most))
	}
	var found VMs
	if err := m.client.Do(ctx, Request{Method: http.MethodGet, Path: []string{"vms"}, Query: query, Into: &found}); err != nil {
		return nil, fmt.Errorf("listing VMs: %w", err)
	}
	return found.VMs, nil
}

// listPages lists the VMs of a search, one page per request, and reports
// whether there were several pages. An engine that filters by permissions
// ignores search and page, and returns all VMs that the user can see.
func (m *Mirror) listPages(ctx context.Context, search string) (all []VM, several bool, err error) {
	for number := range maxPages {
		found, err := m.list(ctx, fmt.Sprintf("%s sortby name page %d", search, number+1), "", m.page)
		if err != nil {
			return nil, false, err
		}
		all = append(all, found...)
		if m.client.endpoint.Filter || len(found) < m.page {
			return all, number > 0, nil
		}
	}
	return nil, false, fmt.Errorf("listing VMs: the engine has more than %d whose comment begins with %s", maxPages*m.page, m.prefix)
}

// listAbsent lists the known VMs that are missing in a list of several pages.
// If a VM is removed during the list, later VMs move up, so that one may be on
// no page.
func (m *Mirror) listAbsent(ctx context.Context, found []VM) ([]VM, error) {
	m.mu.Lock()
	names := map[string]string{}
	for id, known := range m.vms {
		names[id] = known.vm.Name
	}
	m.mu.Unlock()
	for _, vm := range found {
		delete(names, vm.ID)
	}
	var more []VM
	for some := range slices.Chunk(slices.Sorted(maps.Values(names)), batch) {
		listed, err := m.list(ctx, named(some), "", 0)
		if err != nil {
			return nil, err
		}
		more = append(more, listed...)
	}
	return more, nil
}

// named returns the search for VMs with some names.
func named(names []string) string {
	terms := make([]string, 0, len(names))
	for _, name := range names {
		terms = append(terms, fmt.Sprintf("name=%q", name))
	}
	return strings.Join(terms, " or ")
}

// counts reports whether a list is valid for a subject. The caller holds the
// lock.
func (m *Mirror) counts(list uint64, of string) bool {
	s, ok := m.subjects[of]
	return !ok || s.busy == "" && list > s.touched
}

// listDue lists VMs: those in the clusters with VMs of known machines, or those
// in all clusters if that is due, or if the first list lacks a VM.
func (m *Mirror) listDue(ctx context.Context, now time.Time) error {
	if clusters := m.clusters(now); len(clusters) > 0 {
		complete, err := m.listIn(ctx, now, clusters)
		if err != nil || complete {
			return err
		}
	}
	return m.listAll(ctx, now)
}

// clusters returns the IDs of the clusters with VMs of known machines. It
// returns none if the VMs of all clusters must be listed: a VM with an unknown
// creation may appear in any cluster.
func (m *Mirror) clusters(now time.Time) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client.endpoint.Filter || now.Sub(m.whole) >= m.pace.All {
		return nil
	}
	for _, s := range m.subjects {
		if s.awaited {
			return nil
		}
	}
	ids := map[string]bool{}
	for _, other := range m.vms {
		if _, known := m.subjects[other.subject]; known && other.vm.Cluster != nil {
			ids[other.vm.Cluster.ID] = true
		}
	}
	if len(ids) > maxClusters {
		return nil
	}
	return slices.Sorted(maps.Keys(ids))
}

// listIn stores a list of the VMs in some clusters. It returns false if the
// list lacks a VM that was in one of them: that VM may have been moved to
// another cluster or removed, or the cluster was renamed.
func (m *Mirror) listIn(ctx context.Context, now time.Time, clusters []string) (bool, error) {
	var terms []string
	for _, id := range clusters {
		cluster, err := m.names.Find(ctx, Clusters, id, Any)
		if _, missing := errors.AsType[*MissingError](err); missing {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		terms = append(terms, fmt.Sprintf("comment=%q and cluster=%q", m.prefix+"*", cluster.Name))
	}
	list := m.begin()
	found, _, err := m.listPages(ctx, strings.Join(terms, " or "))
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed = now
	seen := m.takeAll(list, found)
	for id, other := range m.vms {
		if !seen[id] && other.vm.Cluster != nil && slices.Contains(clusters, other.vm.Cluster.ID) && m.counts(list, other.subject) {
			m.names.Forget(func(id string) bool { return slices.Contains(clusters, id) })
			return false, nil
		}
	}
	return true, nil
}

// takeAll stores the VMs of a list, and returns the IDs of those that have a
// subject. The caller holds the lock.
func (m *Mirror) takeAll(list uint64, found []VM) map[string]bool {
	seen := map[string]bool{}
	for _, vm := range found {
		if of := m.subjectOf(vm.Comment); of != "" {
			seen[vm.ID] = true
			m.take(list, of, vm, "")
		}
	}
	return seen
}

// listAll stores a list of the VMs in all clusters.
func (m *Mirror) listAll(ctx context.Context, now time.Time) error {
	list := m.begin()
	found, several, err := m.listPages(ctx, fmt.Sprintf("comment=%q", m.prefix+"*"))
	if err != nil {
		return err
	}
	if several {
		more, err := m.listAbsent(ctx, found)
		if err != nil {
			return err
		}
		found = append(found, more...)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed, m.whole = now, now
	seen := m.takeAll(list, found)
	for id, other := range m.vms {
		if !seen[id] && m.counts(list, other.subject) {
			delete(m.vms, id)
			m.tell(other.subject)
		}
	}
	m.settle(list, func(string) bool { return true })
	for of, s := range m.subjects {
		if s.awaited && !now.Before(s.unheard.Add(m.pace.Late)) {
			s.awaited = false
			m.tell(of)
		}
	}
	return nil
}

// listSome reads all details of some VMs, or only the reports of their guests.
// It searches by names, because a VM that is being created has no known ID yet.
func (m *Mirror) listSome(ctx context.Context, names []string, follow string) error {
	list := m.begin()
	found, err := m.list(ctx, named(names), follow, 0)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, vm := range found {
		if of := m.subjectOf(vm.Comment); of != "" {
			seen[vm.ID] = true
			m.take(list, of, vm, follow)
		}
	}
	for id, other := range m.vms {
		if !seen[id] && slices.Contains(names, other.vm.Name) && m.counts(list, other.subject) {
			m.listed, m.whole = time.Time{}, time.Time{} // deleted or renamed
		}
	}
	m.settle(list, func(name string) bool { return slices.Contains(names, name) })
	return nil
}

// settle clears the busy state of subjects that a list has confirmed. The
// caller holds the lock.
func (m *Mirror) settle(list uint64, shown func(name string) bool) {
	for of, s := range m.subjects {
		if s.doubt && list > s.touched && shown(s.name) {
			s.doubt = false
			m.tell(of)
		}
	}
}

// take stores a VM from a list that followed some links. The caller holds the
// lock.
func (m *Mirror) take(list uint64, of string, vm VM, follow string) {
	if !m.counts(list, of) {
		return
	}
	before := m.vms[vm.ID]
	now := &shown{vm: &vm, subject: of}
	if follow != details && before != nil {
		vm.HostDevices = before.vm.HostDevices
		vm.DiskAttachments, vm.Tags, vm.AffinityLabels, vm.Consoles = before.vm.DiskAttachments, before.vm.Tags, before.vm.AffinityLabels, before.vm.Consoles
	}
	switch {
	case follow == details:
		now.detailed = time.Now()
	case before != nil && follow == reports:
		now.detailed = before.detailed
	case before != nil:
		changed := before.vm.Status != vm.Status || before.vm.Comment != vm.Comment || before.vm.FQDN != vm.FQDN || !reflect.DeepEqual(before.vm.Host, vm.Host)
		vm.NICs, vm.ReportedDevices = before.vm.NICs, before.vm.ReportedDevices
		if !changed {
			now.detailed = before.detailed
		}
	}
	m.vms[vm.ID] = now
	if before == nil || !reflect.DeepEqual(before.vm, now.vm) || before.detailed.IsZero() != now.detailed.IsZero() {
		m.tell(of)
	}
}

// due returns the names of the VMs to poll, by the links to follow. Of a
// running VM with known details only the report of its guest can be missing.
func (m *Mirror) due(now time.Time) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]string{}
	for of, s := range m.subjects {
		if s.name == "" || !s.isRestless(now, m.pace.Tire) || !s.isDue(now, m.pace) {
			continue
		}
		names[s.name] = details
		if found, _ := m.choose(of, s.name, ""); found != nil && !s.doubt && found.waits() {
			names[s.name] = reports
		}
		s.looked = now
	}
	for _, other := range m.vms {
		s, asked := m.subjects[other.subject]
		if asked && (other.detailed.IsZero() && now.Sub(s.since) < m.pace.Tire || !other.detailed.IsZero() && now.Sub(other.detailed) > m.pace.Detail) {
			names[other.vm.Name] = details
		}
	}
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out[names[name]] = append(out[names[name]], name)
	}
	return out
}

// waits reports whether only the report of the guest can be missing for a VM.
func (o *shown) waits() bool {
	return !o.detailed.IsZero() && slices.Contains([]string{"wait_for_launch", "powering_up", "up"}, o.vm.Status)
}

// isDue reports whether a subject must be polled: less often if it has not
// changed for long.
func (s *subject) isDue(now time.Time, p Pace) bool {
	return s.doubt || now.Sub(s.since) < p.Soon || now.Sub(s.looked) >= p.Slow
}
