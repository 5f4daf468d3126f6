package ovirtsim

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// identified is an object with an ID.
type identified interface{ ident() string }

// table keeps objects in the order they were made, and finds them by ID.
type table[T identified] struct {
	items []T
	byID  map[string]T
}

func (t *table[T]) add(item T) {
	if t.byID == nil {
		t.byID = map[string]T{}
	}
	t.items = append(t.items, item)
	t.byID[strings.ToLower(item.ident())] = item
}

func (t *table[T]) get(id string) (item T, ok bool) {
	if item, ok = t.byID[id]; !ok {
		item, ok = t.byID[strings.ToLower(id)]
	}
	return item, ok
}

func (t *table[T]) remove(id string) {
	t.removeWhere(func(item T) bool { return strings.EqualFold(item.ident(), id) })
}

func (t *table[T]) removeWhere(gone func(T) bool) {
	t.items = slices.DeleteFunc(t.items, func(item T) bool {
		if !gone(item) {
			return false
		}
		delete(t.byID, strings.ToLower(item.ident()))
		return true
	})
}

// where lists the objects of which something holds.
func (t *table[T]) where(holds func(T) bool) []T {
	var found []T
	for _, item := range t.items {
		if holds(item) {
			found = append(found, item)
		}
	}
	return found
}

// store is all that the engine knows.
type store struct {
	dataCenters   table[*dataCenter]
	clusters      table[*cluster]
	hosts         table[*host]
	domains       table[*domain]
	networks      table[*network]
	profiles      table[*profile]
	templates     table[*template]
	vms           table[*vm]
	disks         table[*disk]
	tags          table[*tag]
	groups        table[*group]
	labels        table[*label]
	instanceTypes table[*instanceType]
	jobs          table[*job]
	events        []*event
	lastEvent     int
	// diskUsers are the VMs of each disk, and lists the replies to lists of
	// VMs, both until something changes.
	diskUsers    map[string][]*vm
	lists        map[string]knownList
	transfers    table[*transfer]
	quotas       table[*quota]
	cpuProfiles  table[*share]
	diskProfiles table[*share]
	roles        table[*role]
	permissions  table[*permission]
	macs         macPool
}

// changed invalidates the caches.
func (s *store) changed() {
	s.diskUsers = nil
	s.lists = map[string]knownList{}
}

// meta contains the fields of all objects.
type meta struct {
	id, name, description, comment string
}

func (m *meta) ident() string { return m.id }

// elems are the common elements of an object.
func (m *meta) elems() []*elem {
	return []*elem{leaf("name", m.name), leaf("description", m.description), leaf("comment", m.comment)}
}

// apply applies the fields of a request body.
func (m *meta) apply(body *elem) {
	body.setString("name", &m.name)
	body.setString("description", &m.description)
	body.setString("comment", &m.comment)
}

func (m *meta) fields(name string) ([]string, bool) {
	switch name {
	case "":
		return []string{m.name, m.description, m.comment}, true
	case "name":
		return []string{m.name}, true
	case "id":
		return []string{m.id}, true
	case "description":
		return []string{m.description}, true
	case "comment":
		return []string{m.comment}, true
	}
	return nil, false
}

// newMeta names a new object.
func newMeta(name string) meta { return meta{id: newID(), name: name} }

// links makes the links of an object.
func links(href string, rels ...string) []*elem {
	out := make([]*elem, 0, len(rels))
	for _, rel := range rels {
		link := el("link")
		link.set("href", href+"/"+rel)
		link.set("rel", rel)
		out = append(out, link)
	}
	return out
}

// actions returns the list of an object's actions.
func actions(href string, rels ...string) *elem {
	return el("actions", links(href, rels...)...)
}

func (s *Server) fillInstanceTypes() {
	for i, size := range []struct {
		name          string
		mem, sockets  int64
		cores, thread int64
	}{
		{"Tiny", 512, 1, 1, 1}, {"Small", 2048, 1, 1, 1}, {"Medium", 4096, 2, 1, 1}, {"Large", 8192, 2, 1, 1}, {"XLarge", 16384, 4, 1, 1},
	} {
		s.instanceTypes.add(&instanceType{
			meta:   meta{id: fmt.Sprintf("00000%d00-0000-0000-0000-000000000000", i+1), name: size.name, description: size.name + " instance type"},
			memory: size.mem * mib, sockets: size.sockets, cores: size.cores, threads: size.thread,
		})
	}
}

// age is how long ago a time was.
func (s *Server) age(t time.Time) time.Duration { return s.clock.Now().Sub(t) }

// knownList is the reply to a list of VMs, which is the same until something
// changes.
type knownList struct {
	text           []byte
	rows, followed int
}
