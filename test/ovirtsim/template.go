package ovirtsim

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// template is a template of VMs.
type template struct {
	meta
	config

	cluster, status string
	version         int
	versionName     string
	created         time.Time
	attachments     []*attachment
	nics            []*nic
	// kubernetes and renderer are those of its disk.
	kubernetes, renderer string
}

func (t *template) elems() []*elem { return t.meta.elems() }

func (t *template) fields(name string) ([]string, bool) {
	switch name {
	case "status":
		return []string{t.status}, true
	case "version_number", "version":
		return []string{strconv.Itoa(t.version)}, true
	case "os":
		return []string{t.os}, true
	case "cluster": // Blank is in none
		return nil, true
	}
	return t.meta.fields(name)
}

func (s *Server) templateRoutes() map[string]handler {
	return map[string]handler{
		"GET templates": func(q *request) (*elem, error) {
			items := inCluster(s, s.templates.items, func(t *template) string { return t.cluster })
			return listPlaced(q, "templates", items, s.templateElem)
		},
		"POST templates":      s.addTemplate,
		"GET templates/{}":    s.onTemplate(func(_ *request, t *template) (*elem, error) { return s.templateElem(t), nil }),
		"PUT templates/{}":    s.onTemplate(s.updateTemplate),
		"DELETE templates/{}": s.onTemplate(s.removeTemplate),
		"GET templates/{}/diskattachments": s.onTemplate(func(q *request, t *template) (*elem, error) {
			return list(q, "disk_attachments", t.attachments, func(a *attachment) *elem { return a.elem("template", t.id) })
		}),
		"GET templates/{}/diskattachments/{}": s.onTemplate(func(q *request, t *template) (*elem, error) {
			for _, a := range t.attachments {
				if a.disk == q.args[1] {
					return a.elem("template", t.id), nil
				}
			}
			return nil, notFound()
		}),
		"GET templates/{}/nics": s.onTemplate(func(q *request, t *template) (*elem, error) {
			return list(q, "nics", t.nics, func(n *nic) *elem { return n.elem("template", t.id) })
		}),
		"GET templates/{}/tags": s.onTemplate(func(*request, *template) (*elem, error) { return el("tags"), nil }),
	}
}

func (s *Server) onTemplate(f func(q *request, t *template) (*elem, error)) handler {
	return func(q *request) (*elem, error) {
		t, ok := s.templates.get(q.args[0])
		if !ok {
			return nil, notFound()
		}
		return f(q, t)
	}
}

func (s *Server) templateElem(t *template) *elem {
	href := apiPath + "/templates/" + t.id
	e := el("template").at(href, t.id)
	e.add(actions(href, "export"))
	e.add(t.elems()...)
	e.add(links(href, "cdroms", "diskattachments", "graphicsconsoles", "nics", "permissions", "tags", "watchdogs")...)
	e.add(t.config.elems(false)...)
	version := el("version", leaf("version_number", max(t.version, 1)), filled("version_name", t.versionName))
	return e.add(leaf("creation_time", timestamp(t.created)), leaf("origin", "ovirt"), ref("cluster", "clusters", t.cluster),
		leaf("status", t.status), version)
}

// addTemplate makes a template of a VM that is down.
func (s *Server) addTemplate(q *request) (*elem, error) {
	name := strings.TrimSpace(q.body.str("name"))
	if name == "" || q.body.get("vm").id() == "" {
		return nil, incomplete("Template", "name, vm.id")
	}
	v, ok := s.vms.get(q.body.get("vm").id())
	if !ok {
		return nil, missingEntity("VM", q.body.get("vm").id())
	}
	if err := permit(v, actMakeTemplate); err != nil {
		return nil, err
	}
	if locked := s.lockedDisks(v.attachments); locked != "" {
		return nil, conflict("Cannot add Template: The following disks are locked: %s. Please try again in a few minutes.", locked)
	}
	version := 1
	for _, t := range s.templates.items {
		if t.name != name || s.dataCenterOf(t.cluster) != s.dataCenterOf(v.cluster) {
			continue
		}
		if q.body.get("version") == nil {
			return nil, nameTaken("add", "Template")
		}
		version = max(version, max(t.version, 1)+1)
	}
	t := &template{
		meta: newMeta(name), config: v.clone(), cluster: v.cluster, status: "ok", created: s.clock.Now(),
		version: version, versionName: q.body.str("version/version_name"),
	}
	t.meta.apply(q.body)
	t.deleteProtected = false
	if err := t.config.apply(q.body); err != nil {
		return nil, err
	}
	for _, n := range v.nics {
		t.nics = append(t.nics, &nic{meta: newMeta(n.name), profile: n.profile, iface: n.iface, linked: true, plugged: true})
	}
	if err := s.copyToTemplate(q, v, t); err != nil {
		return nil, err
	}
	s.templates.add(t)
	s.event(29, "normal", "Creation of Template "+t.name+" from VM "+v.name+" was initiated by "+s.opts.Username+".", q, v)
	return s.templateElem(t), nil
}

// copyToTemplate copies a VM's disks, which locks the VM.
func (s *Server) copyToTemplate(q *request, v *vm, t *template) error {
	var copies []*disk
	for _, a := range v.attachments {
		source, ok := s.disks.get(a.disk)
		if !ok {
			continue
		}
		d := &disk{
			meta: newMeta(source.name), status: diskLocked, provisioned: source.provisioned, actual: source.actual,
			content: source.content, format: source.format, sparse: source.sparse, domains: slices.Clone(source.domains), template: t.id,
		}
		if err := s.fits(d.domains[0], d.actual, "add", "Template"); err != nil {
			return err
		}
		copies = append(copies, d)
		t.attachments = append(t.attachments, &attachment{disk: d.id, iface: a.iface, bootable: a.bootable, active: a.active})
	}
	if len(copies) == 0 {
		return nil
	}
	for _, d := range copies {
		s.disks.add(d)
	}
	t.status, v.status, q.accepted = templateLocked, vmImageLocked, true
	j := s.addJob(q, "Creating Template "+t.name+" from VM "+v.name)
	failing := q.doomed
	s.when(TimeTemplate, func() {
		if failing {
			s.dropTemplate(t, v, j)
			return
		}
		for _, d := range copies {
			d.status = diskOK
		}
		t.status = "ok"
		if !v.removed {
			v.status = vmDown
		}
		s.finish(j)
		s.event(51, "normal", "Creation of Template "+t.name+" from VM "+v.name+" has been completed.", nil, v)
	})
	return nil
}

// dropTemplate is the end of a template whose disks could not be made.
func (s *Server) dropTemplate(t *template, v *vm, j *job) {
	for _, a := range t.attachments {
		s.disks.remove(a.disk)
	}
	s.templates.remove(t.id)
	if !v.removed {
		v.status = vmDown
	}
	s.fail(j)
	s.event(52, "error", "Failed to complete creation of Template "+t.name+" from VM "+v.name+".", nil, v)
}

func (s *Server) updateTemplate(q *request, t *template) (*elem, error) {
	if t.status != "ok" {
		return nil, conflict("Template's Image is locked (temporarily).")
	}
	changed := t.clone()
	if err := changed.apply(q.body); err != nil {
		return nil, err
	}
	t.meta.apply(q.body)
	t.config = changed
	return s.templateElem(t), nil
}

// removeTemplate refuses while thin VMs stand on the template.
func (s *Server) removeTemplate(q *request, t *template) (*elem, error) {
	if t.id == BlankTemplateID {
		return nil, conflict("Cannot remove Template. Removing Blank Template is not allowed.")
	}
	if t.deleteProtected {
		return nil, conflict("Cannot remove Template. Delete protection is enabled. In order to delete, disable Delete protection first.")
	}
	if slices.Contains(templateRefusals[t.status], actRemove) {
		return nil, conflict("Template's Image is locked (temporarily).")
	}
	var users []string
	for _, v := range s.vms.items {
		if v.template == t.id {
			users = append(users, v.name)
		}
	}
	if len(users) > 0 {
		return nil, conflict("Cannot delete Template. Template is being used by the following VMs: %s.", strings.Join(users, ", "))
	}
	s.templates.remove(t.id)
	for _, a := range t.attachments {
		if d, ok := s.disks.get(a.disk); ok {
			s.eraseDisk(d)
		}
	}
	return s.acted(q, "Removing Template "+t.name), nil
}
