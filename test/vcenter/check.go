package vcenter

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"html"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/pbm"
	_ "github.com/vmware/govmomi/pbm/types" // registers the types of the service for storage policies
	"github.com/vmware/govmomi/vim25"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"
)

// violations are the requests that did not fit the API.
type violations struct {
	mu   sync.Mutex
	list []string
}

func (v *violations) add(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.list = append(v.list, text)
}

// Violations lists the requests of all clients that were rejected because they do
// not fit the API.
func (s *Server) Violations() []string {
	s.violations.mu.Lock()
	defer s.violations.mu.Unlock()
	return slices.Clone(s.violations.list)
}

// checkRequest returns an error if a SOAP request does not fit the API: its
// action names no version of the API, or its body does not fit the schema.
// It knows nothing about single methods.
func (s *Server) checkRequest(r *http.Request, body []byte) error {
	version, err := s.checkAction(r)
	if err != nil {
		return err
	}
	method, err := parseBody(body)
	if err != nil {
		return err
	}
	kind, ok := typeNamed(method.name)
	if !ok {
		return fmt.Errorf("unknown method %s", method.name)
	}
	c := checker{version: version}
	c.value(method, kind, method.name)
	return errors.Join(c.found...)
}

// checkAction returns the version of the API that a request is made in.
//
// Clients of govmomi send the version that govmomi was generated from, which may
// be newer than the server, and no version to the service for storage policies.
// vCenter accepts both.
func (s *Server) checkAction(r *http.Request) (string, error) {
	action := strings.Trim(r.Header.Get("SoapAction"), `"`)
	uri, version, _ := strings.Cut(action, "/")
	if r.URL.Path == pbm.Path {
		if uri != "urn:"+pbm.Namespace {
			return "", fmt.Errorf("unsupported version URI %q", action)
		}
		return s.apiVersion(), nil
	}
	if uri != "urn:"+vim25.Namespace || version != s.apiVersion() && !slices.Contains(releases, version) {
		return "", fmt.Errorf("unsupported version URI %q", action)
	}
	if newer(version, s.apiVersion()) {
		return s.apiVersion(), nil
	}
	return version, nil
}

// releases are the versions of the API that were released.
var releases = []string{
	"6.5", "6.7", "6.7.1", "6.7.2", "6.7.3", "7.0", "7.0.0.0", "7.0.0.2", "7.0.1.0", "7.0.1.1", "7.0.2.0", "7.0.2.1", "7.0.3.0", "7.0.3.1", "7.0.3.2",
	"8.0.0.0", "8.0.0.1", "8.0.0.2", "8.0.1.0", "8.0.2.0", "8.0.3.0", "9.0.0.0", "9.1.0.0",
}

func (s *Server) apiVersion() string { return s.opts.Version + ".0" }

// reject answers a request that does not fit the API.
func (s *Server) reject(w http.ResponseWriter, err error) {
	s.violations.add(err.Error())
	w.Header().Set("Content-Type", `text/xml; charset="utf-8"`)
	w.WriteHeader(http.StatusInternalServerError)
	_, _ = fmt.Fprintf(w, `<?xml version="1.0" encoding="UTF-8"?>
<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>`+
		`<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>%s</faultstring>`+
		`<detail><InvalidRequestFault xmlns="urn:vim25" xsi:type="InvalidRequest"></InvalidRequestFault></detail></soapenv:Fault>`+
		`</soapenv:Body></soapenv:Envelope>`, html.EscapeString(err.Error()))
}

// element is an XML element.
type element struct {
	name string
	// kind is its xsi:type, and refType the type of a reference.
	kind, refType string
	text          strings.Builder
	children      []*element
}

// parseBody returns the call in a SOAP envelope.
func parseBody(envelope []byte) (*element, error) {
	decoder := xml.NewDecoder(bytes.NewReader(envelope))
	root := &element{}
	open := []*element{root}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		parent := open[len(open)-1]
		switch token := token.(type) {
		case xml.StartElement:
			child := newElement(token)
			parent.children = append(parent.children, child)
			open = append(open, child)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			parent.text.Write(token)
		}
	}
	for _, envelope := range root.children {
		for _, part := range envelope.children {
			if part.name == "Body" && len(part.children) == 1 {
				return part.children[0], nil
			}
		}
	}
	return nil, errors.New("a request has one call in its body")
}

func newElement(start xml.StartElement) *element {
	e := &element{name: start.Name.Local}
	for _, attribute := range start.Attr {
		switch {
		case attribute.Name.Local != "type":
		case attribute.Name.Space == "":
			e.refType = attribute.Value
		default:
			e.kind = attribute.Value
		}
	}
	return e
}

// primitives are the types of XML Schema that values of any type may have, by
// their names in lower case.
var primitives = map[string]reflect.Type{
	"boolean": reflect.TypeFor[bool](), "byte": reflect.TypeFor[int8](), "short": reflect.TypeFor[int16](), "int": reflect.TypeFor[int32](),
	"long": reflect.TypeFor[int64](), "float": reflect.TypeFor[float32](), "double": reflect.TypeFor[float64](), "string": reflect.TypeFor[string](),
	"datetime": reflect.TypeFor[time.Time](), "base64binary": reflect.TypeFor[[]byte](),
}

// typeNamed returns a type of the schema by its name in XML.
func typeNamed(name string) (reflect.Type, bool) {
	find := types.TypeFunc()
	if primitive, ok := strings.CutPrefix(strings.ToLower(name), "xsd:"); ok {
		kind, known := primitives[primitive]
		return kind, known
	}
	if kind, ok := find(name); ok {
		return kind, true
	}
	if at := strings.LastIndex(name, ":"); at >= 0 {
		name = name[at+1:]
	}
	if kind, ok := find(name); ok {
		return kind, true
	}
	return find(pbm.Namespace + ":" + name)
}

// checker compares a request with the schema, which govmomi's types describe.
type checker struct {
	version string
	found   []error
}

func (c *checker) notef(path, format string, args ...any) {
	c.found = append(c.found, fmt.Errorf("%s: "+format, append([]any{path}, args...)...))
}

var (
	refType  = reflect.TypeFor[types.ManagedObjectReference]()
	timeType = reflect.TypeFor[time.Time]()
)

// value compares an element with the type that its place has.
func (c *checker) value(e *element, kind reflect.Type, path string) {
	for kind.Kind() == reflect.Pointer {
		kind = kind.Elem()
	}
	if kind.Kind() == reflect.Interface || kind.Kind() == reflect.Struct && e.kind != "" && kind != refType {
		if kind = c.dynamic(e, kind, path); kind == nil {
			return
		}
	}
	switch {
	case kind == refType:
		c.reference(e, path)
	case kind == timeType:
		if at, err := time.Parse(time.RFC3339, e.content()); err != nil || at.IsZero() {
			c.notef(path, "%q is no time", e.content())
		}
	case kind.Kind() == reflect.Struct:
		c.object(e, kind, path)
	default:
		c.scalar(e, kind, path)
	}
}

func (e *element) content() string { return strings.TrimSpace(e.text.String()) }

// reference checks that a reference names a type and an object.
func (c *checker) reference(e *element, path string) {
	at := types.ManagedObjectReference{Type: e.refType, Value: e.content()}
	if !mo.IsManagedObjectType(at.Type) && !strings.HasPrefix(at.Type, "Pbm") {
		c.notef(path, "a reference to an object of type %q", e.refType)
	}
	if at.Value == "" {
		c.notef(path, "a reference without a value")
	}
}

// dynamic returns the type in an element's xsi:type, or nil if the place of the
// element does not allow it.
func (c *checker) dynamic(e *element, place reflect.Type, path string) reflect.Type {
	name := e.kind
	if name == "" && place.NumMethod() == 0 {
		c.notef(path, "has no xsi:type")
		return nil
	}
	if name == "" {
		name = strings.TrimPrefix(place.Name(), "Base")
	}
	kind, ok := typeNamed(name)
	switch {
	case !ok:
		c.notef(path, "unknown type %q", name)
		return nil
	case place.Kind() == reflect.Interface && !reflect.PointerTo(kind).Implements(place) && !kind.Implements(place),
		place.Kind() == reflect.Struct && kind != place && !derives(kind, place):
		c.notef(path, "%s is no %s", name, place.Name())
		return nil
	case isAbstract(kind):
		c.notef(path, "%s is abstract", name)
		return nil
	}
	return kind
}

// derives reports whether a type extends another.
func derives(kind, base reflect.Type) bool {
	if kind.Kind() != reflect.Struct {
		return false
	}
	for f := range kind.Fields() {
		if f.Anonymous && (f.Type == base || derives(f.Type, base)) {
			return true
		}
	}
	return false
}

// families are types whose members stand for something in a host or a cluster.
// Those that others extend are abstract: nothing can be made of them.
var families = []reflect.Type{
	reflect.TypeFor[types.VirtualDevice](), reflect.TypeFor[types.VirtualDeviceBackingInfo](), reflect.TypeFor[types.VirtualDeviceBusSlotInfo](),
	reflect.TypeFor[types.ClusterRuleInfo](), reflect.TypeFor[types.ClusterGroupInfo](), reflect.TypeFor[types.ComputeResourceConfigSpec](),
	reflect.TypeFor[types.VirtualMachineProfileSpec](), reflect.TypeFor[types.CryptoSpec](), reflect.TypeFor[types.CustomFieldValue](),
}

// isAbstract reports whether a type exists only for others to extend it. Types
// that are extended have a getter named after them. A card of type vmxnet3 is
// one although RDMA cards extend it.
func isAbstract(kind reflect.Type) bool {
	if _, extended := reflect.PointerTo(kind).MethodByName("Get" + kind.Name()); !extended || kind == reflect.TypeFor[types.VirtualVmxnet3]() {
		return false
	}
	return slices.ContainsFunc(families, func(base reflect.Type) bool { return kind == base || derives(kind, base) })
}

// property is a property of a type.
type property struct {
	name     string
	kind     reflect.Type
	required bool
	// since is the version of the API that has it first; empty, if every one
	// has it.
	since string
}

// schema caches the properties of types.
var schema sync.Map

// propertiesOf returns the properties of a type in their order.
func propertiesOf(kind reflect.Type) []property {
	if known, ok := schema.Load(kind); ok {
		return known.([]property)
	}
	var out []property
	for f := range kind.Fields() {
		if f.Anonymous {
			out = append(out, propertiesOf(f.Type)...)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("xml"), ",")
		if name == "" || name == "-" {
			continue
		}
		out = append(out, property{
			name: name, kind: f.Type, since: f.Tag.Get("vim"),
			required: name == "_this" || !strings.Contains(f.Tag.Get("json"), "omitempty"),
		})
	}
	schema.Store(kind, out)
	return out
}

// object compares an element with a type that has properties.
func (c *checker) object(e *element, kind reflect.Type, path string) {
	properties := propertiesOf(kind)
	at, counts := 0, make([]int, len(properties))
	for _, child := range e.children {
		here := slices.IndexFunc(properties, func(p property) bool { return p.name == child.name })
		if here < 0 {
			c.notef(path, "%s has no property %q", kind.Name(), child.name)
			continue
		}
		if here < at {
			c.notef(path, "property %q is out of order", child.name)
		}
		at = here
		c.property(child, properties[here], counts[here], path)
		counts[here]++
	}
	for i := range properties {
		if properties[i].required && counts[i] == 0 {
			c.notef(path, "required property %q of %s is missing", properties[i].name, kind.Name())
		}
	}
}

// property compares an element with the property it is, of which there were n
// before it.
func (c *checker) property(e *element, p property, n int, path string) {
	path += "." + e.name
	kind := p.kind
	isList := kind.Kind() == reflect.Slice && kind.Elem().Kind() != reflect.Uint8
	if isList {
		kind = kind.Elem()
		path += "[" + strconv.Itoa(n) + "]"
	}
	if n > 0 && !isList {
		c.notef(path, "is no list")
	}
	if p.since != "" && newer(p.since, c.version) {
		c.notef(path, "exists since version %s of the API, the request is in %s", p.since, c.version)
	}
	c.value(e, kind, path)
}

// scalar checks that an element's text is a value of its type.
func (c *checker) scalar(e *element, kind reflect.Type, path string) {
	var err error
	switch text := e.content(); kind.Kind() {
	case reflect.Bool:
		_, err = strconv.ParseBool(text)
	case reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Int:
		_, err = strconv.ParseInt(text, 10, kind.Bits())
	case reflect.Float32, reflect.Float64:
		_, err = strconv.ParseFloat(text, kind.Bits())
	default:
		if values := reflect.Zero(kind).MethodByName("Values"); values.IsValid() && !hasValue(values.Call(nil)[0], text) {
			err = fmt.Errorf("%s has no value %q", kind.Name(), text)
		}
	}
	if err != nil {
		c.notef(path, "%w", err)
	}
	if len(e.children) > 0 {
		c.notef(path, "has no properties")
	}
}

func hasValue(values reflect.Value, text string) bool {
	for i := range values.Len() {
		if values.Index(i).String() == text {
			return true
		}
	}
	return false
}

// newer reports whether version a of the API came after b.
func newer(a, b string) bool {
	left, right := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(left), len(right)) {
		var l, r int
		if i < len(left) {
			l, _ = strconv.Atoi(left[i])
		}
		if i < len(right) {
			r, _ = strconv.Atoi(right[i])
		}
		if l != r {
			return l > r
		}
	}
	return false
}
