package ovirtsim

import (
	"cmp"
	_ "embed"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// apiText describes the engine's API. To update it:
// go run ./test/ovirtsim/apimodel CHECKOUT >test/ovirtsim/api.txt.
//
//go:embed api.txt
var apiText string

// apiModel is the engine's API as the engine's own model describes it, independent
// of this simulator and its clients.
type apiModel struct {
	types    map[string]*apiType
	enums    map[string][]string
	services map[string]*apiType
	methods  map[string][]apiMethod // by service and name
}

// apiType is a type with its fields, or a service with the services below it.
type apiType struct {
	parents []string
	fields  map[string]apiField
}

type apiField struct {
	kind       string
	list, link bool
}

// apiMethod is a method of a service, or one of its variants.
type apiMethod struct {
	inputs    map[string]apiField
	output    apiField
	mandatory [][]string // each a list of alternative paths
}

var loadModel = sync.OnceValue(func() *apiModel {
	m := &apiModel{types: map[string]*apiType{}, enums: map[string][]string{}, services: map[string]*apiType{}, methods: map[string][]apiMethod{}}
	for line := range strings.Lines(apiText) {
		switch words := strings.Fields(line); words[0] {
		case "enum":
			m.enums[words[1]] = words[2:]
		case "type", "mixin":
			m.types[words[1]] = parseType(words[2:])
		case "service":
			m.services[words[1]] = parseType(words[2:])
		case "method":
			key := words[1] + " " + words[2]
			m.methods[key] = append(m.methods[key], parseMethod(words[3:]))
		}
	}
	return m
})

func parseType(words []string) *apiType {
	t := &apiType{fields: map[string]apiField{}}
	for _, word := range words {
		if parent, ok := strings.CutPrefix(word, "<"); ok {
			t.parents = append(t.parents, parent)
			continue
		}
		name, field := parseField(word)
		t.fields[name] = field
	}
	return t
}

func parseField(word string) (string, apiField) {
	name, kind, _ := strings.Cut(word, ":")
	f := apiField{kind: kind}
	f.kind, f.link = strings.CutSuffix(f.kind, "@")
	f.kind, f.list = strings.CutSuffix(f.kind, "[]")
	return name, f
}

func parseMethod(words []string) apiMethod {
	m := apiMethod{inputs: map[string]apiField{}}
	for _, word := range words {
		switch word[0] {
		case '!':
			m.mandatory = append(m.mandatory, strings.Split(word[1:], "|"))
		case '=':
			_, m.output = parseField(word[1:])
		default:
			name, field := parseField(word)
			m.inputs[name] = field
		}
	}
	return m
}

// field finds a field of a type or service, also one of its parents. Names are
// compared without underscores if loose is set, as in paths.
func field(all map[string]*apiType, of, name string, loose bool) (apiField, bool) {
	t, ok := all[of]
	if !ok {
		return apiField{}, false
	}
	for known, f := range t.fields {
		if known == name || loose && flat(known) == flat(name) {
			return f, true
		}
	}
	for _, parent := range t.parents {
		if f, ok := field(all, parent, name, loose); ok {
			return f, true
		}
	}
	return apiField{}, false
}

func flat(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) }

// everywhere are parameters that the engine takes with every request.
var everywhere = map[string]apiField{
	"correlation_id": {kind: "string"}, "async": {kind: "boolean"}, "filter": {kind: "boolean"}, "all_content": {kind: "boolean"},
}

// elements are the names of elements that differ from those of their types.
var elements = map[string]string{"virtual_numa_node": "vm_numa_node"}

// optional are fields that the model calls mandatory although engines do not
// require them: requests of go-ovirt-client and Terraform lack them.
var optional = []string{"attachment.pass_discard", "attachment.bootable", "disk.interface", "node.cpu.cores.index"}

// check returns an error for a request that is not one of the API: a path, a
// parameter, an element or a value that the model does not have, or a mandatory
// field that is missing. A real engine ignores most of these; a client that
// sends them relies on something that does not happen.
func (m *apiModel) check(method string, parts []string, query url.Values, body *elem) error {
	methods, action, err := m.find(method, parts)
	if err != nil {
		return err
	}
	if err := m.checkQuery(methods, query); err != nil {
		return err
	}
	if action {
		return m.checkAction(methods, body)
	}
	for _, candidate := range methods {
		for name, input := range candidate.inputs {
			if m.types[input.kind] == nil {
				continue
			}
			if body == nil || body.name != cmp.Or(elements[input.kind], input.kind) {
				return unknownf("a body that is no <%s>", cmp.Or(elements[input.kind], input.kind))
			}
			if err := m.checkElem(body, input.kind, body.name); err != nil {
				return err
			}
			return complete(methods, el("", el(name).merge(body)))
		}
	}
	if body != nil {
		return unknownf("a body where the method has none: <%s>", body.name)
	}
	return nil
}

// find returns the variants of the method that a request calls.
func (m *apiModel) find(method string, parts []string) (methods []apiMethod, action bool, err error) {
	service := "system"
	for i, part := range parts {
		next, ok := field(m.services, service, part, true)
		if !ok {
			next, ok = field(m.services, service, "{}", false)
		}
		if !ok && i == len(parts)-1 && method == http.MethodPost {
			return m.action(service, part)
		}
		if !ok {
			return nil, false, unknownf("the path /%s", strings.Join(parts, "/"))
		}
		service = next.kind
	}
	names := map[string][]string{
		http.MethodGet: {"list", "get"}, http.MethodPost: {"add"}, http.MethodPut: {"update"}, http.MethodDelete: {"remove"},
	}[method]
	for _, name := range names {
		if found := m.method(service, name); found != nil {
			return found, false, nil
		}
	}
	return nil, false, unknownf("%s of /%s", method, strings.Join(parts, "/"))
}

// method finds a method of a service, also one of its parents.
func (m *apiModel) method(service, name string) []apiMethod {
	if found := m.methods[service+" "+name]; found != nil {
		return found
	}
	if s := m.services[service]; s != nil {
		for _, parent := range s.parents {
			if found := m.method(parent, name); found != nil {
				return found
			}
		}
	}
	return nil
}

func (m *apiModel) action(service, part string) ([]apiMethod, bool, error) {
	for key, methods := range m.methods {
		if of, name, _ := strings.Cut(key, " "); of == service && flat(name) == part {
			return methods, true, nil
		}
	}
	return nil, false, unknownf("the action %s", part)
}

// checkQuery checks the names and values of parameters, and that follow names
// links.
func (m *apiModel) checkQuery(methods []apiMethod, query url.Values) error {
	for name, values := range query {
		input, ok := everywhere[name]
		for _, candidate := range methods {
			if found, has := candidate.inputs[name]; has {
				input, ok = found, true
			}
		}
		if !ok || m.types[input.kind] != nil {
			return unknownf("the parameter %s", name)
		}
		for _, value := range values {
			if err := m.checkValue("the parameter "+name, input.kind, value); err != nil {
				return err
			}
			if name == "follow" {
				if err := m.checkFollow(methods[0].output.kind, value); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func (m *apiModel) checkFollow(kind, value string) error {
	for path := range strings.SplitSeq(value, ",") {
		at := kind
		for name := range strings.SplitSeq(strings.TrimSpace(path), ".") {
			f, ok := field(m.types, at, name, true)
			if !ok || !f.link {
				return unknownf("follow of %s, which is no link of %s", name, at)
			}
			at = f.kind
		}
	}
	return nil
}

// checkAction checks the <action> of a request.
func (m *apiModel) checkAction(methods []apiMethod, body *elem) error {
	if body == nil || body.name != "action" {
		return unknownf("a body that is no <action>")
	}
	for _, kid := range body.kids {
		input, ok := everywhere[kid.name]
		for _, candidate := range methods {
			if found, has := candidate.inputs[kid.name]; has {
				input, ok = found, true
			}
		}
		if !ok {
			return unknownf("action.%s", kid.name)
		}
		if err := m.checkField(kid, input, "action"); err != nil {
			return err
		}
	}
	return complete(methods, body)
}

// checkElem checks the children of an element of a type.
func (m *apiModel) checkElem(e *elem, kind, path string) error {
	for _, a := range e.attr {
		if a.Name.Local != "id" && a.Name.Local != "href" {
			return unknownf("%s@%s", path, a.Name.Local)
		}
	}
	seen := map[string]bool{}
	for _, kid := range e.kids {
		f, ok := field(m.types, kind, kid.name, false)
		if !ok {
			return unknownf("%s.%s", path, kid.name)
		}
		if seen[kid.name] {
			return unknownf("%s.%s twice", path, kid.name)
		}
		seen[kid.name] = true
		if err := m.checkField(kid, f, path); err != nil {
			return err
		}
	}
	return nil
}

func (m *apiModel) checkField(e *elem, f apiField, path string) error {
	path += "." + e.name
	switch {
	case f.list:
		for _, item := range e.kids {
			if item.name != f.kind && item.name != singular(e.name) {
				return unknownf("%s.%s", path, item.name)
			}
			if err := m.checkField(item, apiField{kind: f.kind}, path); err != nil {
				return err
			}
		}
		return nil
	case m.types[f.kind] != nil:
		if strings.TrimSpace(e.text) != "" {
			return unknownf("a text in %s", path)
		}
		return m.checkElem(e, f.kind, path)
	case len(e.kids) > 0:
		return unknownf("elements in %s", path)
	}
	return m.checkValue(path, f.kind, e.text)
}

func singular(name string) string {
	if stem, ok := strings.CutSuffix(name, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(name, "s")
}

// checkValue checks a text against a primitive type or an enum.
func (m *apiModel) checkValue(what, kind, value string) error {
	var err error
	switch kind {
	case "string":
	case "boolean":
		if value != "true" && value != "false" {
			err = strconv.ErrSyntax
		}
	case "integer":
		_, err = strconv.ParseInt(value, 10, 64)
	case "double":
		_, err = strconv.ParseFloat(value, 64)
	case "date":
		_, err = time.Parse(time.RFC3339, value)
	default:
		values, known := m.enums[kind]
		if !known || !slices.Contains(values, value) {
			err = strconv.ErrSyntax
		}
	}
	if err != nil {
		return unknownf("%s is %q, which is no %s", what, value, kind)
	}
	return nil
}

// complete returns an error unless the inputs are complete for one of the
// variants of a method.
func complete(methods []apiMethod, inputs *elem) error {
	missing := ""
	for _, candidate := range methods {
		lacks := candidate.lacks(inputs)
		if lacks == "" {
			return nil
		}
		missing = lacks
	}
	return &fault{status: http.StatusBadRequest, reason: "Incomplete parameters", detail: missing + " is required"}
}

func (a *apiMethod) lacks(inputs *elem) string {
	for _, alternatives := range a.mandatory {
		if !slices.ContainsFunc(alternatives, func(path string) bool {
			return slices.Contains(optional, path) || inputs.holds(strings.Split(path, "."))
		}) {
			return strings.Join(alternatives, " or ")
		}
	}
	return ""
}

// holds reports whether an element has a value at a path, in any member of the
// lists on the way.
func (e *elem) holds(path []string) bool {
	if len(path) == 0 {
		return true
	}
	if path[0] == "id" && e.id() != "" {
		return true
	}
	for _, kid := range e.kids {
		if kid.name == path[0] && kid.holds(path[1:]) || kid.name == singular(e.name) && kid.holds(path) {
			return true
		}
	}
	return false
}

// merge takes over attributes and children of another element.
func (e *elem) merge(other *elem) *elem {
	e.attr, e.kids = other.attr, other.kids
	return e
}

// unknownf is the fault for a request that the API does not have. The engine
// has no such fault; the text names the simulator.
func unknownf(format string, args ...any) error {
	return &fault{
		status: http.StatusBadRequest, reason: "Not in the API",
		detail: "ovirtsim: not in the engine's API: " + fmt.Sprintf(format, args...),
	}
}
