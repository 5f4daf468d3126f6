package schema

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// Operation is a method of a path.
type Operation struct {
	Method string `json:"method"`
	Path   string `json:"path"`
	Name   string `json:"name"`
	// Protected operations are performed by the daemon that runs as root.
	Protected bool `json:"protected"`
	// ProxyTo is the parameter with the node that performs the operation.
	ProxyTo string `json:"proxyto"`
	// AllowToken is set if API tokens may use the operation.
	AllowToken  bool                 `json:"allowtoken"`
	Permissions *Permissions         `json:"permissions"`
	Parameters  map[string]*Property `json:"parameters"`
	Returns     *Property            `json:"returns"`

	parts []string
}

// Permissions are the privileges that an operation requires.
type Permissions struct {
	// User is all or world, or empty.
	User string `json:"user"`
	// Check is an expression, such as ["perm", "/vms/{vmid}", ["VM.Audit"]].
	Check []any `json:"check"`
}

// Property is the type of a value.
type Property struct {
	Type          string               `json:"type"`
	Format        *Format              `json:"format"`
	Optional      bool                 `json:"optional"`
	Enum          []string             `json:"enum"`
	Default       string               `json:"default"`
	Minimum       *float64             `json:"minimum"`
	Maximum       *float64             `json:"maximum"`
	MinLength     *int                 `json:"minLength"`
	MaxLength     *int                 `json:"maxLength"`
	Pattern       string               `json:"pattern"`
	Requires      string               `json:"requires"`
	Alias         string               `json:"alias"`
	KeyAlias      string               `json:"keyAlias"`
	DefaultKey    bool                 `json:"default_key"`
	Items         *Property            `json:"items"`
	Properties    map[string]*Property `json:"properties"`
	Open          *bool                `json:"additionalProperties"`
	TypeProperty  string               `json:"type-property"`
	InstanceTypes []string             `json:"instance-types"`
	Alternatives  []*Property          `json:"oneOf"`
}

// Format is a name, or the properties of a property string.
type Format struct {
	Name       string
	Properties Properties
}

// Properties are those of a property string.
type Properties map[string]*Property

// UnmarshalJSON reads a name or an object.
func (f *Format) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return json.Unmarshal(data, &f.Name)
	}
	return json.Unmarshal(data, &f.Properties)
}

//go:embed api.jsonl
var apiFacts string

//go:embed formats.json
var formatFacts []byte

// model is the schema with its named formats.
type model struct {
	operations []*Operation
	formats    map[string]Properties
}

// load reads the facts once. They are part of the program, so an error in them is
// a defect.
var load = sync.OnceValue(func() model {
	var m model
	if err := json.Unmarshal(formatFacts, &m.formats); err != nil {
		panic(fmt.Errorf("reading formats.json: %w", err))
	}
	for line := range strings.Lines(apiFacts) {
		o := &Operation{}
		if err := json.Unmarshal([]byte(line), o); err != nil {
			panic(fmt.Errorf("reading api.jsonl: %w", err))
		}
		o.parts = strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
		m.operations = append(m.operations, o)
	}
	for _, o := range m.operations {
		if o.Path == configPath && o.Method == http.MethodPut {
			// The published schema repeats this format as the type of ideN.
			m.formats["pve-qm-ide"] = o.Parameters["ide[n]"].Format.Properties
			break
		}
	}
	return m
})

// configPath is the path of a VM's configuration.
const configPath = "/nodes/{node}/qemu/{vmid}/config"

// Operations returns all operations.
func Operations() []*Operation { return load().operations }

// Find returns the operation for a path below /api2/json and the parameters in
// the path.
func Find(method, path string) (*Operation, map[string]any) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var found *Operation
	for _, o := range load().operations {
		if o.Method == method && o.matches(parts) && (found == nil || o.literals() > found.literals()) {
			found = o
		}
	}
	if found == nil {
		return nil, nil
	}
	params := map[string]any{}
	for i, part := range found.parts {
		name, is := variable(part)
		switch {
		case is && name == "volume":
			// The name of a volume contains slashes.
			params[name] = strings.Join(parts[i:], "/")
		case is:
			params[name] = parts[i]
		}
	}
	return found, params
}

// matches reports whether the parts of a path are those of the operation.
func (o *Operation) matches(parts []string) bool {
	for i, part := range o.parts {
		name, is := variable(part)
		switch {
		case i >= len(parts) || parts[i] == "":
			return false
		case is && name == "volume":
			return true
		case !is && part != parts[i]:
			return false
		}
	}
	return len(parts) == len(o.parts)
}

// literals is the number of parts that are no variables.
func (o *Operation) literals() (n int) {
	for _, part := range o.parts {
		if _, is := variable(part); !is {
			n++
		}
	}
	return n
}

// variable returns the name of a part such as {node}.
func variable(part string) (string, bool) {
	name, is := strings.CutPrefix(part, "{")
	return strings.TrimSuffix(name, "}"), is
}

// indexed are the highest indexes of options such as net0: MAX_NETS and others
// in qemu-server.
var indexed = map[string]int{
	"hostpci": 15, "ide": 3, "ipconfig": 31, "net": 31, "numa": 7, "parallel": 2, "sata": 5, "scsi": 30,
	"serial": 3, "unused": 255, "usb": 13, "virtio": 15, "virtiofs": 9,
}

// indexPattern matches an option with an index.
var indexPattern = regexp.MustCompile(`^([a-z]+)(0|[1-9][0-9]*)$`)

// Indexed returns the name and the index of an option such as net0.
func Indexed(option string) (name string, index int, ok bool) {
	match := indexPattern.FindStringSubmatch(option)
	if match == nil {
		return "", 0, false
	}
	limit, known := indexed[match[1]]
	index, err := strconv.Atoi(match[2])
	return match[1], index, known && err == nil && index <= limit
}

// property returns the type of a parameter, or nil.
func property(properties map[string]*Property, name string) *Property {
	if p := properties[name]; p != nil && !strings.HasSuffix(name, "[n]") {
		return p
	}
	if base, _, ok := Indexed(name); ok {
		return properties[base+"[n]"]
	}
	return nil
}

// Option returns the type of an option of a VM's configuration, or nil.
func Option(name string) *Property {
	for _, o := range load().operations {
		if o.Path == configPath && o.Method == http.MethodPut {
			return property(o.Parameters, name)
		}
	}
	return nil
}
