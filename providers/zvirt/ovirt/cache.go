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

	"github.com/nova-platform/cluster-api-provider-nova/providers/hypervisor"
	"github.com/nova-platform/cluster-api-provider-nova/providers/kit/polled"
)

// PollIntervals contains the poll intervals of a Cache.
type PollIntervals struct {
	// Idle is the interval between two lists of the VMs in the clusters of
	// known machines, and Busy the interval between two polls of VMs that are
	// being changed.
	Idle, Busy time.Duration
	// AllClusters is the interval between two lists of the VMs in all clusters.
	AllClusters time.Duration
	// Groups is the interval between two lists of affinity groups, and Detail
	// the maximum age of data that a list does not contain.
	Groups, Detail time.Duration
	// BusyTimeout is the time without a change after which a VM is no longer
	// polled more often than the others.
	BusyTimeout time.Duration
	// Slow is the interval between two polls of VMs that have not changed for
	// SlowAfter.
	Slow, SlowAfter time.Duration
	// AppearTimeout is how long after a request without a response a VM may still
	// appear.
	AppearTimeout time.Duration
}

// DefaultPollIntervals contains the intervals outside of tests. Idle leaves a
// second for a VM that shuts down and for the list itself, so that a change is
// detected within ten seconds.
var DefaultPollIntervals = PollIntervals{Idle: 9 * time.Second, Busy: 1500 * time.Millisecond, AllClusters: time.Minute, Slow: 5 * time.Second, SlowAfter: time.Minute, Groups: time.Minute, Detail: 10 * time.Minute, BusyTimeout: 10 * time.Minute, AppearTimeout: 2 * timeout}

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

// Cache caches the state of the VMs of an engine that have an owner in their
// comment. One list serves all of them; the data that it does not contain is
// read only for VMs that change, many per request.
//
// A list that was requested before the end of a write to a VM is ignored for
// that VM: it may be older than the write. A write with an unknown result keeps
// its VM busy until a later list contains the result.
type Cache struct {
	client    *Client
	intervals PollIntervals
	// prefix starts the comments, and ownerOf parses a comment.
	prefix  string
	ownerOf func(comment string) string
	changed func(owner string, key hypervisor.Key)
	// page is the number of VMs per list request.
	page int
	// names contains the names of clusters, which VMs are searched by.
	names *Directory

	mu           sync.Mutex
	vms          map[string]*entry
	owners       *polled.Records[string, owner, *owner]
	groups       map[string]map[string]*AffinityGroup // by cluster and ID
	listed       time.Time
	listedAll    time.Time // time of the last list of all clusters
	groupsListed time.Time
	groupWrites  uint64 // number of writes to members of groups
}

// entry is the last observed state of a VM.
type entry struct {
	vm    *VM
	owner string
	// detailed is when its details were read; zero if they are outdated.
	detailed time.Time
}

// owner is the owner of a VM, such as a machine. It is active while its VM is
// polled often.
type owner struct {
	polled.Record

	name string
	// busy describes the request in progress.
	busy          string
	resultUnknown bool
	// since is when the owner or its VM last changed.
	since time.Time
	// polled is when the VM of an active owner was last polled.
	polled time.Time
}

// NewCache returns an empty cache. It calls changed with an owner whose VM
// changed, and with its machine, if that is known.
func NewCache(c *Client, p PollIntervals, prefix string, ownerOf func(string) string, changed func(string, hypervisor.Key)) *Cache {
	return &Cache{
		client: c, intervals: p, prefix: prefix, ownerOf: ownerOf, changed: changed, page: page, names: NewDirectory(c),
		vms: map[string]*entry{}, owners: polled.New[string, owner](p.AppearTimeout), groups: map[string]map[string]*AffinityGroup{},
	}
}

// Snapshot is the known state of an owner.
type Snapshot struct {
	// VM is nil if the engine has none. It must not be changed.
	VM *VM
	// Detailed means that disks, interfaces and other details are known.
	Detailed bool
	// Busy describes the request in progress, or the request with an unknown
	// result.
	Busy string
	// Ambiguous contains VMs of the owner if the right one cannot be
	// identified: its ID is not known, and none or several of them have its
	// name. They are sorted by ID and must not be changed. VM is nil then.
	Ambiguous []*VM
}

// Get returns the state of the VM of an owner: the VM with the given ID, or,
// while the ID is not known, with the given name. A copy that a user made of
// the VM, including its comment, is another VM.
func (m *Cache) Get(of, name, id string) Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.owner(of)
	s.name = name
	v := Snapshot{Busy: s.busy}
	if s.resultUnknown && v.Busy == "" {
		v.Busy = "Checking the result of the last request"
	}
	found, candidates := m.choose(of, name, id)
	v.Ambiguous = candidates
	if found != nil {
		s.Seen()
		v.VM, v.Detailed = found.vm, !found.detailed.IsZero()
		if !v.Detailed {
			s.since = time.Now()
			m.owners.SetActive(s, true)
			m.owners.PollSoon()
		}
	}
	return v
}

// All returns the VMs of all owners, known or not, sorted by ID. They must
// not be changed.
func (m *Cache) All() []*VM {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]*VM, 0, len(m.vms))
	for _, other := range m.vms {
		all = append(all, other.vm)
	}
	slices.SortFunc(all, func(a, b *VM) int { return strings.Compare(a.ID, b.ID) })
	return all
}

// choose returns the VM of an owner, or the candidates. The caller holds the
// lock.
func (m *Cache) choose(of, name, id string) (*entry, []*VM) {
	var named, all []*entry
	for _, other := range m.vms {
		switch {
		case other.owner != of:
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
	candidates := make([]*VM, 0, len(all))
	for _, other := range all {
		candidates = append(candidates, other.vm)
	}
	slices.SortFunc(candidates, func(a, b *VM) int { return strings.Compare(a.ID, b.ID) })
	return nil, candidates
}

// owner returns the record of an owner. The caller holds the lock.
func (m *Cache) owner(of string) *owner {
	s := m.owners.Get(of)
	if s.since.IsZero() {
		s.since = time.Now()
	}
	return s
}

// Track stores the machine of an owner.
func (m *Cache) Track(of string, key hypervisor.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owner(of).Key = key
}

// SetIdle sets whether an owner is idle. The VMs of owners that are not idle
// are polled often.
func (m *Cache) SetIdle(of string, idle bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.owner(of); m.owners.SetActive(s, !idle) {
		s.since = time.Now()
	}
}

// MayAppear reports whether a VM of an owner, which exists since a time, may
// have been requested and may still appear, although the engine does not show
// it. If so, the owner is reported when the result is known.
func (m *Cache) MayAppear(of string, exists time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, soon := m.owners.MayAppear(m.owner(of), exists)
	return soon
}

// Keys returns the machines of all owners.
func (m *Cache) Keys() []hypervisor.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners.Keys()
}

// Forget drops a deleted owner.
func (m *Cache) Forget(of string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.owners.Forget(of)
}

// Begin marks an owner as busy before a request. It returns false if another
// request is in progress.
func (m *Cache) Begin(of, busy string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.owner(of)
	if s.busy != "" || s.resultUnknown {
		return false
	}
	s.busy = busy
	return true
}

// End records the result of a request. If it succeeded, then updates the
// cache.
func (m *Cache) End(of string, err error, then func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.owner(of)
	s.busy, s.since = "", time.Now()
	m.owners.Written(s)
	m.owners.SetActive(s, true)
	s.resultUnknown = IsAmbiguous(err) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	none := true
	for _, other := range m.vms {
		if other.owner != of {
			continue
		}
		none = false
		if err != nil {
			other.detailed = time.Time{}
		}
	}
	if s.resultUnknown && none {
		s.Unknown() // only a creation can have an unknown result here
	}
	if err == nil {
		then()
		m.changed(of, s.Key)
	}
	m.owners.PollSoon()
}

// Put stores a VM in the state that the caller knows. It is called in then of
// End.
func (m *Cache) Put(of string, vm VM, detailed bool) {
	at := time.Time{}
	if detailed {
		at = time.Now()
	}
	m.vms[vm.ID] = &entry{vm: &vm, owner: of, detailed: at}
}

// Remove removes a VM and its group memberships. It is called in then of End.
func (m *Cache) Remove(id string) {
	delete(m.vms, id)
	for _, groups := range m.groups {
		for _, g := range groups {
			g.removeMember(id)
		}
	}
	m.groupsListed = time.Time{}
	m.groupWrites++
}

// AddMember adds a VM to a group. It is called in then of End.
func (m *Cache) AddMember(cluster string, g AffinityGroup, id string) {
	groups, ok := m.groups[cluster]
	if !ok {
		return // read again soon
	}
	if groups[g.ID] == nil {
		groups[g.ID] = &g
	}
	groups[g.ID].addMember(id)
	m.groupWrites++
}

// RemoveMember removes a VM from a group. It is called in then of End.
func (m *Cache) RemoveMember(cluster, group, id string) {
	if g := m.groups[cluster][group]; g != nil {
		left := *g
		left.removeMember(id)
		m.groups[cluster][group] = &left
	}
	m.groupWrites++
}

// GroupsOf returns the groups of a cluster that a VM is in and that fit. It
// knows groups once Group has read them.
func (m *Cache) GroupsOf(cluster, id string, fits func(*AffinityGroup) bool) []AffinityGroup {
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

func (g *AffinityGroup) addMember(id string) {
	if !g.Has(id) {
		members := []Object{{ID: id}}
		if g.VMs != nil {
			members = append(slices.Clone(g.VMs.VMs), members...)
		}
		g.VMs = &Members{VMs: members}
	}
}

func (g *AffinityGroup) removeMember(id string) {
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
func (m *Cache) Group(ctx context.Context, cluster, name string) (AffinityGroup, bool, error) {
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

// InvalidateGroups invalidates the affinity groups of a cluster.
func (m *Cache) InvalidateGroups(cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups, cluster)
}

func (m *Cache) readGroups(ctx context.Context, cluster string) error {
	m.mu.Lock()
	_, known := m.groups[cluster]
	regroups := m.groupWrites
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
	if known && m.groupWrites != regroups {
		// The list may be older than a write in the meantime: it is read again.
		m.groupsListed = time.Time{}
		return nil
	}
	before := m.groups[cluster]
	m.groups[cluster] = byID
	for id, g := range byID {
		if old := before[id]; old == nil || !reflect.DeepEqual(old.VMs, g.VMs) {
			m.notifyMembers(old, g)
		}
	}
	for id, g := range before {
		if byID[id] == nil {
			m.notifyMembers(g)
		}
	}
	return nil
}

// notifyMembers reports the owners whose VM is in one of some groups. The
// caller holds the lock.
func (m *Cache) notifyMembers(groups ...*AffinityGroup) {
	for _, other := range m.vms {
		for _, g := range groups {
			if g != nil && g.Has(other.vm.ID) {
				m.notify(other.owner)
			}
		}
	}
}

// EmptyGroups returns the groups without members that fit, by cluster and ID.
func (m *Cache) EmptyGroups(fits func(*AffinityGroup) bool) map[string][]string {
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

// RemoveGroup removes a deleted group.
func (m *Cache) RemoveGroup(cluster, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.groups[cluster], id)
}

// notify reports a known owner.
func (m *Cache) notify(of string) {
	if s := m.owners.Known(of); s != nil {
		s.since = time.Now()
		m.changed(of, s.Key)
	}
}

// Refresh lists all VMs.
func (m *Cache) Refresh(ctx context.Context) error {
	m.mu.Lock()
	m.listed, m.listedAll, m.groupsListed = time.Time{}, time.Time{}, time.Time{}
	m.mu.Unlock()
	return m.Poll(ctx)
}

// Wait returns when the next Poll is due.
func (m *Cache) Wait(ctx context.Context) error {
	last := time.Now()
	return m.owners.Wait(ctx, func() time.Time {
		if m.anyPolledOften(last) {
			return last.Add(m.intervals.Busy)
		}
		return last.Add(m.intervals.Idle)
	})
}

func (m *Cache) anyPolledOften(now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.owners.All() {
		if s.isPolledOften(now, m.intervals.BusyTimeout) {
			return true
		}
	}
	return false
}

func (s *owner) isPolledOften(now time.Time, tire time.Duration) bool {
	return s.resultUnknown || s.IsActive() && now.Sub(s.since) < tire
}

// Poll sends the requests that are due: all VMs, the details of some, affinity
// groups.
func (m *Cache) Poll(ctx context.Context) error {
	now := time.Now()
	m.mu.Lock()
	all, groups := now.Sub(m.listed) >= m.intervals.Idle, now.Sub(m.groupsListed) >= m.intervals.Groups
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
	m.groupsListed = now
	clusters := slices.Collect(maps.Keys(m.groups))
	m.mu.Unlock()
	for _, cluster := range clusters {
		if err := m.readGroups(ctx, cluster); err != nil {
			return err
		}
	}
	return nil
}

// startList counts a list.
func (m *Cache) startList() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owners.StartList()
}

func (m *Cache) list(ctx context.Context, search, follow string, limit int) ([]VM, error) {
	query := url.Values{"search": {search}}
	if follow != "" {
		query.Set("follow", follow)
	}
	if limit > 0 && !m.client.endpoint.Filter {
		query.Set("max", strconv.Itoa(limit))
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
func (m *Cache) listPages(ctx context.Context, search string) (all []VM, several bool, err error) {
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
func (m *Cache) listAbsent(ctx context.Context, found []VM) ([]VM, error) {
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

// isValid reports whether a list is valid for an owner. The caller holds the
// lock.
func (m *Cache) isValid(list uint64, of string) bool {
	s := m.owners.Known(of)
	return s == nil || s.busy == "" && m.owners.Shows(list, s)
}

// listDue lists VMs: those in the clusters with VMs of known machines, or those
// in all clusters if that is due, or if the first list lacks a VM.
func (m *Cache) listDue(ctx context.Context, now time.Time) error {
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
func (m *Cache) clusters(now time.Time) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.client.endpoint.Filter || now.Sub(m.listedAll) >= m.intervals.AllClusters {
		return nil
	}
	for _, s := range m.owners.All() {
		if s.IsAwaited() {
			return nil
		}
	}
	ids := map[string]bool{}
	for _, other := range m.vms {
		if m.owners.Known(other.owner) != nil && other.vm.Cluster != nil {
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
func (m *Cache) listIn(ctx context.Context, now time.Time, clusters []string) (bool, error) {
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
	list := m.startList()
	found, _, err := m.listPages(ctx, strings.Join(terms, " or "))
	if err != nil {
		return false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.listed = now
	seen := m.storeAll(list, found)
	for id, other := range m.vms {
		if !seen[id] && other.vm.Cluster != nil && slices.Contains(clusters, other.vm.Cluster.ID) && m.isValid(list, other.owner) {
			m.names.Forget(func(id string) bool { return slices.Contains(clusters, id) })
			return false, nil
		}
	}
	return true, nil
}

// storeAll stores the VMs of a list, and returns the IDs of those that have a
// owner. The caller holds the lock.
func (m *Cache) storeAll(list uint64, found []VM) map[string]bool {
	seen := map[string]bool{}
	for _, vm := range found {
		if of := m.ownerOf(vm.Comment); of != "" {
			seen[vm.ID] = true
			m.store(list, of, vm, "")
		}
	}
	return seen
}

// listAll stores a list of the VMs in all clusters.
func (m *Cache) listAll(ctx context.Context, now time.Time) error {
	list := m.startList()
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
	m.listed, m.listedAll = now, now
	seen := m.storeAll(list, found)
	for id, other := range m.vms {
		if !seen[id] && m.isValid(list, other.owner) {
			delete(m.vms, id)
			m.notify(other.owner)
		}
	}
	m.confirm(list, func(string) bool { return true })
	for of, s := range m.owners.All() {
		if m.owners.EndAwaiting(s) {
			m.notify(of)
		}
	}
	return nil
}

// listSome reads all details of some VMs, or only the reports of their guests.
// It searches by names, because a VM that is being created has no known ID yet.
func (m *Cache) listSome(ctx context.Context, names []string, follow string) error {
	list := m.startList()
	found, err := m.list(ctx, named(names), follow, 0)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := map[string]bool{}
	for _, vm := range found {
		if of := m.ownerOf(vm.Comment); of != "" {
			seen[vm.ID] = true
			m.store(list, of, vm, follow)
		}
	}
	for id, other := range m.vms {
		if !seen[id] && slices.Contains(names, other.vm.Name) && m.isValid(list, other.owner) {
			m.listed, m.listedAll = time.Time{}, time.Time{} // deleted or renamed
		}
	}
	m.confirm(list, func(name string) bool { return slices.Contains(names, name) })
	return nil
}

// confirm clears the busy state of owners that a list has confirmed. The
// caller holds the lock.
func (m *Cache) confirm(list uint64, shown func(name string) bool) {
	for of, s := range m.owners.All() {
		if s.resultUnknown && m.owners.Shows(list, s) && shown(s.name) {
			s.resultUnknown = false
			m.notify(of)
		}
	}
}

// store stores a VM from a list that followed some links. The caller holds the
// lock.
func (m *Cache) store(list uint64, of string, vm VM, follow string) {
	if !m.isValid(list, of) {
		return
	}
	before := m.vms[vm.ID]
	now := &entry{vm: &vm, owner: of}
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
		m.notify(of)
	}
}

// due returns the names of the VMs to poll, by the links to follow. Of a
// running VM with known details only the report of its guest can be missing.
func (m *Cache) due(now time.Time) map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	names := map[string]string{}
	for of, s := range m.owners.All() {
		if s.name == "" || !s.isPolledOften(now, m.intervals.BusyTimeout) || !s.isDue(now, m.intervals) {
			continue
		}
		names[s.name] = details
		if found, _ := m.choose(of, s.name, ""); found != nil && !s.resultUnknown && found.needsReportOnly() {
			names[s.name] = reports
		}
		s.polled = now
	}
	for _, other := range m.vms {
		s := m.owners.Known(other.owner)
		if s != nil && (other.detailed.IsZero() && now.Sub(s.since) < m.intervals.BusyTimeout || !other.detailed.IsZero() && now.Sub(other.detailed) > m.intervals.Detail) {
			names[other.vm.Name] = details
		}
	}
	out := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out[names[name]] = append(out[names[name]], name)
	}
	return out
}

// needsReportOnly reports whether only the report of the guest can be missing
// for a VM.
func (o *entry) needsReportOnly() bool {
	return !o.detailed.IsZero() && slices.Contains([]string{"wait_for_launch", "powering_up", "up"}, o.vm.Status)
}

// isDue reports whether an owner must be polled: less often if it has not
// changed for long.
func (s *owner) isDue(now time.Time, p PollIntervals) bool {
	return s.resultUnknown || now.Sub(s.since) < p.SlowAfter || now.Sub(s.polled) >= p.Slow
}
