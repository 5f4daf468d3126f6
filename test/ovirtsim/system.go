package ovirtsim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// Jobs and events are forgotten after a while, as by the engine's defaults.
const (
	finishedJobRetention = 10 * time.Minute
	failedJobRetention   = time.Hour
	eventRetention       = 30 * 24 * time.Hour
)

// job is an operation as it is seen from outside.
type job struct {
	meta

	correlation, status string
	started, ended      time.Time
	// done is closed at the end.
	done chan struct{}
}

func (j *job) fields(name string) ([]string, bool) {
	switch name {
	case "correlation_id":
		return []string{j.correlation}, true
	case "status":
		return []string{j.status}, true
	}
	return j.meta.fields(name)
}

// event is a line of the engine's log.
type event struct {
	number         int
	code           int
	severity, text string
	correlation    string
	at             time.Time
	vm, vmName     string
	cluster        string
}

func (e *event) fields(name string) ([]string, bool) {
	switch name {
	case "", "message":
		return []string{e.text}, true
	case "severity":
		return []string{e.severity}, true
	case "type", "code":
		return []string{strconv.Itoa(e.code)}, true
	case "id":
		return []string{strconv.Itoa(e.number)}, true
	case "correlation_id":
		return []string{e.correlation}, true
	case "time":
		return []string{timestamp(e.at)}, true
	case "vm.name", "vms.name":
		return []string{e.vmName}, true
	case "vm.id", "vms.id":
		return []string{e.vm}, true
	}
	return nil, false
}

func (s *Server) systemRoutes() map[string]handler {
	return map[string]handler{
		"GET ":        s.root,
		"OPTIONS ":    func(*request) (*elem, error) { return nil, nil },
		"GET jobs":    s.listJobs,
		"GET jobs/{}": one(&s.jobs, jobElem),
		"GET events":  s.listEvents,
		"GET events/{}": func(q *request) (*elem, error) {
			for _, e := range s.events {
				if strconv.Itoa(e.number) == q.args[0] {
					return eventElem(e), nil
				}
			}
			return nil, notFound()
		},
		"GET macpools": func(*request) (*elem, error) {
			return el("mac_pools", s.macPoolElem()), nil
		},
		"GET macpools/{}": func(q *request) (*elem, error) {
			if q.args[0] != macPoolID {
				return nil, notFound()
			}
			return s.macPoolElem(), nil
		},
	}
}

// root describes the engine.
func (s *Server) root(q *request) (*elem, error) {
	version := el("version")
	for i, name := range []string{"major", "minor", "build", "revision"} {
		parts := strings.Split(s.opts.Version, ".")
		if i < len(parts) {
			version.add(leaf(name, parts[i]))
		}
	}
	version.add(leaf("full_version", s.opts.Version+"-1.el8"))
	root := el("api")
	root.add(links(apiPath, "affinitylabels", "clusters", "datacenters", "disks", "events", "hosts", "imagetransfers", "instancetypes",
		"jobs", "networks", "storagedomains", "tags", "templates", "vms", "vnicprofiles")...)
	up := len(s.vms.where(func(v *vm) bool { return running(v.status) }))
	hosts := len(s.hosts.where(func(h *host) bool { return h.status == hostUp }))
	if q.user != nil {
		root.add(ref("authenticated_user", "users", q.user.id), ref("effective_user", "users", q.user.id))
	}
	return root.add(
		el("product_info", leaf("instance_id", s.instance), leaf("name", "oVirt Engine"), leaf("vendor", "ovirt.org"), version),
		el("special_objects", ref("blank_template", "templates", BlankTemplateID), ref("root_tag", "tags", BlankTemplateID)),
		el("summary",
			el("hosts", leaf("active", hosts), leaf("total", len(s.hosts.items))),
			el("storage_domains", leaf("active", len(s.domains.items)), leaf("total", len(s.domains.items))),
			el("vms", leaf("active", up), leaf("total", len(s.vms.items)))),
		leaf("time", timestamp(s.clock.Now())),
	), nil
}

// addJob records the begin of an operation.
func (s *Server) addJob(q *request, description string) *job {
	s.expireJobs()
	j := &job{meta: newMeta(""), status: "started", started: s.clock.Now(), correlation: q.correlation, done: make(chan struct{})}
	q.job = j
	j.description = description
	if j.correlation == "" {
		j.correlation = newID()
	}
	s.jobs.add(j)
	return j
}

// finish records its end.
func (s *Server) finish(j *job) {
	j.status, j.ended = "finished", s.clock.Now()
	close(j.done)
}

// fail records an end that is none to be glad of.
func (s *Server) fail(j *job) {
	j.status, j.ended = "failed", s.clock.Now()
	close(j.done)
}

func (s *Server) expireJobs() {
	if len(s.jobs.items) == 0 || s.age(s.jobs.items[0].started) < finishedJobRetention {
		return
	}
	s.jobs.removeWhere(func(j *job) bool {
		switch j.status {
		case "started":
			return false
		case "failed":
			return s.age(j.ended) >= failedJobRetention
		}
		return s.age(j.ended) >= finishedJobRetention
	})
}

func (s *Server) listJobs(q *request) (*elem, error) {
	s.expireJobs()
	return list(q, "jobs", s.jobs.items, jobElem)
}

func jobElem(j *job) *elem {
	href := apiPath + "/jobs/" + j.id
	e := el("job").at(href, j.id)
	e.add(actions(href, "clear", "end"), leaf("description", j.description))
	e.add(links(href, "steps")...)
	e.add(leaf("auto_cleared", true), leaf("external", false), leaf("last_updated", timestamp(j.started)), leaf("start_time", timestamp(j.started)), leaf("status", j.status))
	if !j.ended.IsZero() {
		e.add(leaf("end_time", timestamp(j.ended)))
	}
	return e
}

// event writes a line into the engine's log.
func (s *Server) event(code int, severity, text string, q *request, v *vm) {
	old := 0
	for old < len(s.events) && s.age(s.events[old].at) >= eventRetention {
		old++
	}
	s.events = s.events[old:]
	s.lastEvent++
	e := &event{number: s.lastEvent, code: code, severity: severity, text: text, at: s.clock.Now()}
	if q != nil {
		e.correlation = q.correlation
	}
	if v != nil {
		e.vm, e.vmName, e.cluster = v.id, v.name, v.cluster
	}
	s.events = append(s.events, e)
}

// listEvents lists the newest first, or those after one.
func (s *Server) listEvents(q *request) (*elem, error) {
	events := s.events
	if text := q.param("from"); text != "" {
		from, err := strconv.Atoi(text)
		if err != nil {
			return nil, badValue("from", text)
		}
		first, _ := slices.BinarySearchFunc(events, from+1, func(e *event, number int) int { return e.number - number })
		events = events[first:]
	}
	events = slices.Clone(events)
	slices.Reverse(events)
	return list(q, "events", events, eventElem)
}

func eventElem(e *event) *elem {
	id := strconv.Itoa(e.number)
	out := el("event").at(apiPath+"/events/"+id, id)
	return out.add(leaf("description", e.text), leaf("code", e.code), filled("correlation_id", e.correlation), leaf("custom_id", -1),
		leaf("flood_rate", 30), leaf("index", e.number), leaf("origin", "oVirt"), leaf("severity", e.severity), leaf("time", timestamp(e.at)),
		ref("cluster", "clusters", e.cluster), ref("vm", "vms", e.vm), el("user", leaf("name", DefaultUsername)))
}
