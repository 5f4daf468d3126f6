package ovirt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// Kinds of objects in a Directory: the last part of their URL.
const (
	DataCenters    = "datacenters"
	Clusters       = "clusters"
	StorageDomains = "storagedomains"
	VNICProfiles   = "vnicprofiles"
	Networks       = "networks"
	InstanceTypes  = "instancetypes"
	Hosts          = "hosts"
	AffinityLabels = "affinitylabels"
	Tags           = "tags"
	CPUProfiles    = "cpuprofiles"
	DiskProfiles   = "diskprofiles"
)

const (
	// fresh is the maximum age of a list that lacks a name, or whose object
	// caused a failed request; versions is the maximum age of the latest
	// version of a template.
	fresh    = 5 * time.Second
	versions = time.Minute
)

// MissingError means that a name or ID identifies no object, or several.
type MissingError struct {
	Name string
	Many bool
}

func (e *MissingError) Error() string {
	switch {
	case e.Name == "" && e.Many:
		return "is empty and the engine has several: name one"
	case e.Name == "":
		return "is empty and the engine has none to take"
	case e.Many:
		return fmt.Sprintf("%q names several objects of the engine: use an ID", e.Name)
	default:
		return fmt.Sprintf("%q does not exist in the engine, or the account cannot see it", e.Name)
	}
}

// Directory finds objects by name or ID. It lists each kind once, and again if
// a name is missing.
type Directory struct {
	client *Client
	flight singleflight.Group

	mu        sync.Mutex
	lists     map[string]listing
	templates map[string]found
}

type listing struct {
	items []Object
	at    time.Time
}

type found struct {
	template *Template
	at       time.Time
}

// NewDirectory returns an empty directory.
func NewDirectory(c *Client) *Directory {
	return &Directory{client: c, lists: map[string]listing{}, templates: map[string]found{}}
}

// Forget invalidates the lists that contain an object for whose ID used returns
// true, unless they were read just now.
func (d *Directory) Forget(used func(id string) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for kind, known := range d.lists {
		if time.Since(known.at) > fresh && slices.ContainsFunc(known.items, func(o Object) bool { return used(o.ID) }) {
			delete(d.lists, kind)
		}
	}
	for key, known := range d.templates {
		if time.Since(known.at) > fresh && used(known.template.ID) {
			delete(d.templates, key)
		}
	}
}

// Quotas is the kind of the quotas of a data center.
func Quotas(dataCenter string) string { return DataCenters + "/" + dataCenter + "/quotas" }

// Find returns the object of a kind that has a name or ID and fits. An empty
// name finds the only one that fits.
func (d *Directory) Find(ctx context.Context, kind, name string, fits func(Object) bool) (Object, error) {
	for again := false; ; again = true {
		all, at, err := d.list(ctx, kind, again)
		if err != nil {
			return Object{}, err
		}
		var hits []Object
		for _, o := range all {
			if (name == "" || o.Name == name || o.ID == name) && fits(o) {
				hits = append(hits, o)
			}
		}
		switch {
		case len(hits) == 1:
			return hits[0], nil
		case len(hits) == 0 && !again && time.Since(at) > fresh:
			continue
		}
		return Object{}, &MissingError{Name: name, Many: len(hits) > 1}
	}
}

// All returns the objects of a kind, as they were within the last minute.
func (d *Directory) All(ctx context.Context, kind string) ([]Object, error) {
	all, at, err := d.list(ctx, kind, false)
	if err == nil && time.Since(at) > versions {
		all, _, err = d.list(ctx, kind, true)
	}
	return all, err
}

// Any fits always.
func Any(Object) bool { return true }

// list returns all objects of a kind, and the time of the request.
func (d *Directory) list(ctx context.Context, kind string, again bool) ([]Object, time.Time, error) {
	d.mu.Lock()
	known, ok := d.lists[kind]
	d.mu.Unlock()
	if ok && !again {
		return known.items, known.at, nil
	}
	result, err, _ := d.flight.Do(kind, func() (any, error) {
		var list List
		err := d.client.Do(context.WithoutCancel(ctx), Request{Method: http.MethodGet, Path: strings.Split(kind, "/"), Into: &list})
		if err != nil {
			return nil, fmt.Errorf("listing %s: %w", kind, err)
		}
		read := listing{items: list.Items, at: time.Now()}
		d.mu.Lock()
		d.lists[kind] = read
		d.mu.Unlock()
		return read, nil
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	read, _ := result.(listing)
	return read.items, read.at, nil
}

// Profile returns a vNIC profile that is named by ID or as network/profile.
func (d *Directory) Profile(ctx context.Context, name, dataCenter string) (Object, error) {
	network, profile, ok := strings.Cut(name, "/")
	if !ok {
		return d.Find(ctx, VNICProfiles, name, Any)
	}
	n, err := d.Find(ctx, Networks, network, func(o Object) bool { return o.DataCenter != nil && o.DataCenter.ID == dataCenter })
	if err != nil {
		return Object{}, err
	}
	o, err := d.Find(ctx, VNICProfiles, profile, func(o Object) bool { return o.Network != nil && o.Network.ID == n.ID })
	if m, ok := errors.AsType[*MissingError](err); ok {
		m.Name = name
	}
	return o, err
}

// Template returns a template by ID, or by name and version in a data center;
// version zero is the latest.
func (d *Directory) Template(ctx context.Context, id, name string, version int32, dataCenter string) (*Template, error) {
	key := fmt.Sprintf("%s %s %d %s", id, name, version, dataCenter)
	d.mu.Lock()
	known, ok := d.templates[key]
	d.mu.Unlock()
	if ok && time.Since(known.at) < versions {
		return known.template, nil
	}
	result, err, _ := d.flight.Do("template "+key, func() (any, error) {
		t, err := d.template(context.WithoutCancel(ctx), id, name, version, dataCenter)
		if err == nil {
			d.mu.Lock()
			d.templates[key] = found{template: t, at: time.Now()}
			d.mu.Unlock()
		}
		return t, err
	})
	t, _ := result.(*Template)
	return t, err
}

func (d *Directory) template(ctx context.Context, id, name string, version int32, dataCenter string) (*Template, error) {
	query := url.Values{"follow": {"disk_attachments.disk"}}
	if id != "" {
		t := &Template{}
		err := d.client.Do(ctx, Request{Method: http.MethodGet, Path: []string{"templates", id}, Query: query, Into: t})
		if IsStatus(err, http.StatusNotFound) {
			return nil, &MissingError{Name: id}
		}
		return t, err
	}
	query.Set("search", fmt.Sprintf("name=%q", name))
	var all Templates
	if err := d.client.Do(ctx, Request{Method: http.MethodGet, Path: []string{"templates"}, Query: query, Into: &all}); err != nil {
		return nil, fmt.Errorf("listing templates: %w", err)
	}
	var hits []Template
	for _, t := range all.Templates {
		if t.Name != name || version != 0 && t.Version.Number != version {
			continue
		}
		if t.Cluster != nil {
			in, err := d.Find(ctx, Clusters, t.Cluster.ID, Any)
			if err != nil || in.DataCenter == nil || in.DataCenter.ID != dataCenter {
				continue
			}
		}
		hits = append(hits, t)
	}
	if len(hits) == 0 {
		if version != 0 {
			name = fmt.Sprintf("%s (version %d)", name, version)
		}
		return nil, &MissingError{Name: name}
	}
	latest := slices.MaxFunc(hits, func(a, b Template) int { return cmp.Compare(a.Version.Number, b.Version.Number) })
	return &latest, nil
}
