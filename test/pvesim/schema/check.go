package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// Check checks the parameters of a request, those of the path included. Values
// are strings, json.Number, bool, or []any.
func (o *Operation) Check(params map[string]any) error {
	normalize(o.Parameters, params)
	found := problems{}
	found.object("", o.Parameters, params)
	if len(found) > 0 {
		return Invalid(found)
	}
	return nil
}

// normalize converts between lists and their texts.
func normalize(properties map[string]*Property, params map[string]any) {
	for name, value := range params {
		p := property(properties, name)
		if p == nil || value == nil {
			continue
		}
		list, isList := value.([]any)
		switch {
		case isList && p.Type == "string" && p.Format != nil && strings.HasSuffix(p.Format.Name, "-list"):
			texts := make([]string, len(list))
			for i := range list {
				texts[i] = Text(list[i])
			}
			params[name] = strings.Join(texts, ",")
		case !isList && p.Type == "array":
			params[name] = []any{value}
		}
	}
}

// Text returns a scalar value as text.
func Text(value any) string {
	switch v := value.(type) {
	case string:
		return v
	case json.Number:
		return v.String()
	case bool:
		if v {
			return "1"
		}
		return "0"
	default:
		return fmt.Sprint(v)
	}
}

// problems are the errors by parameter.
type problems map[string]string

func (f problems) addf(path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if before, ok := f[path]; ok {
		// The separator is a backslash and an n in Proxmox VE too.
		text = before + `\n` + text
	}
	f[path] = text
}

// object checks the properties of an object.
func (f problems) object(path string, properties map[string]*Property, values map[string]any) {
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if !strings.HasSuffix(name, "[n]") {
			p := properties[name]
			f.property(join(path, name), p, values[name], p.appliesTo(values))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		p := property(properties, name)
		if p == nil {
			f.addf(join(path, name), "property is not defined in schema and the schema does not allow additional properties")
			continue
		}
		if properties[name] == nil {
			f.property(join(path, name), p, values[name], true)
		}
		if p.Requires != "" && values[p.Requires] == nil {
			f.addf(join(path, p.Requires), "missing property required by '%s'", join(path, name))
		}
	}
}

// appliesTo reports whether the property applies to the type of an object.
func (p *Property) appliesTo(values map[string]any) bool {
	if p.TypeProperty == "" || p.InstanceTypes == nil {
		return true
	}
	return slices.Contains(p.InstanceTypes, Text(values[p.TypeProperty]))
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// property checks a value.
func (f problems) property(path string, p *Property, value any, applies bool) {
	if p.Alias != "" {
		return
	}
	if value == nil {
		if !p.Optional && applies && p.Type != "null" {
			f.addf(path, "property is missing and it is not optional")
		}
		return
	}
	if !f.typed(path, p, value) {
		return
	}
	switch v := value.(type) {
	case []any:
		for i := range v {
			if p.Items != nil {
				f.property(fmt.Sprintf("%s[%d]", path, i), p.Items, v[i], true)
			}
		}
	case map[string]any:
		if p.Properties != nil {
			f.object(path, p.Properties, v)
		}
	default:
		f.scalar(path, p, Text(value))
	}
}

var (
	integerPattern = regexp.MustCompile(`^[+-]?\d+$`)
	numberPattern  = regexp.MustCompile(`^[+-]?(\d+\.\d+|\d+\.|\.\d+|\d+)([eE][+-]?\d+)?$`)
)

// typed checks the type of a value.
func (f problems) typed(path string, p *Property, value any) bool {
	if list, isList := value.([]any); p.Type == "array" || isList {
		if !isList || p.Type != "array" {
			f.addf(path, "type check ('%s') failed%s", p.Type, got(list))
			return false
		}
		return true
	}
	if _, isObject := value.(map[string]any); p.Type == "object" || isObject {
		if !isObject || p.Type != "object" {
			f.addf(path, "type check ('%s') failed", p.Type)
			return false
		}
		return true
	}
	text := Text(value)
	valid := true
	switch p.Type {
	case "boolean":
		valid = text == "0" || text == "1"
	case "integer":
		valid = integerPattern.MatchString(text)
	case "number":
		valid = numberPattern.MatchString(text)
	}
	if !valid {
		f.addf(path, "type check ('%s') failed - got '%s'", p.Type, text)
	}
	return valid
}

// got describes a list where a scalar is expected.
func got(list []any) string {
	if list == nil {
		return ""
	}
	return " - got ARRAY"
}

// scalar checks the format and the limits of a text.
func (f problems) scalar(path string, p *Property, text string) {
	if p.Format != nil {
		if err := p.Format.check(path, text); err != nil {
			f.addf(path, "invalid format - %s\n", err)
			return
		}
	}
	if p.Pattern != "" && !matches(p.Pattern, text) {
		f.addf(path, "value does not match the regex pattern")
		return
	}
	if text := p.outside(text); text != "" {
		f.addf(path, "%s", text)
		return
	}
	if p.Enum != nil && !slices.Contains(p.Enum, text) {
		f.addf(path, "value '%s' does not have a value in the enumeration '%s'", text, strings.Join(p.Enum, ", "))
	}
}

// outside describes how a value exceeds the limits.
func (p *Property) outside(text string) string {
	length := utf8.RuneCountInString(text)
	switch {
	case p.MaxLength != nil && length > *p.MaxLength:
		return fmt.Sprintf("value may only be %d characters long", *p.MaxLength)
	case p.MinLength != nil && length < *p.MinLength:
		return fmt.Sprintf("value must be at least %d characters long", *p.MinLength)
	}
	number, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil || !numberPattern.MatchString(text):
	case p.Maximum != nil && number > *p.Maximum:
		return "value must have a maximum value of " + limit(*p.Maximum)
	case p.Minimum != nil && number < *p.Minimum:
		return "value must have a minimum value of " + limit(*p.Minimum)
	}
	return ""
}

func limit(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }

// patterns are compiled once. Perl compares with ^pattern$, without a group.
var patterns sync.Map

func matches(pattern, text string) bool {
	compiled, ok := patterns.Load(pattern)
	if !ok {
		compiled, _ = patterns.LoadOrStore(pattern, regexp.MustCompile("^"+pattern+"$"))
	}
	expression, _ := compiled.(*regexp.Regexp)
	return expression.MatchString(text)
}

// check checks a text against the format.
func (f *Format) check(path, text string) error {
	if f.Properties != nil {
		_, err := f.Properties.parse(path, text)
		return err
	}
	return checkNamed(f.Name, path, text)
}

// ParseOption parses the property string of an option of a VM.
func ParseOption(option, text string) (map[string]string, error) {
	p := Option(option)
	if p == nil || p.Format == nil {
		return nil, fmt.Errorf("option '%s' is no property string", option)
	}
	if p.Format.Properties != nil {
		return p.Format.Properties.parse("", text)
	}
	properties, ok := load().formats[p.Format.Name]
	if !ok {
		return nil, fmt.Errorf("option '%s' is no property string", option)
	}
	return properties.parse("", text)
}

// parse parses a property string.
func (s Properties) parse(path, text string) (map[string]string, error) {
	values := map[string]string{}
	hasDefault := false
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		key, value, isPair := strings.Cut(part, "=")
		var err error
		switch {
		case isPair && key != "" && value != "":
			err = s.pair(values, key, value)
		case isPair:
			err = errors.New("missing key in comma-separated list property")
		case hasDefault:
			err = errors.New("duplicate key in comma-separated list property: " + s.defaultKey())
		default:
			hasDefault = true
			err = s.value(values, part)
		}
		if err != nil {
			return nil, err
		}
	}
	found := problems{}
	checked := map[string]any{}
	for key, value := range values {
		checked[key] = value
	}
	found.object(path, s, checked)
	if len(found) == 0 {
		return values, nil
	}
	return nil, errors.New(strings.TrimSuffix((&Error{Message: "format error\n", Errors: found}).Error(), "\n"))
}

// pair adds a key and its value.
func (s Properties) pair(values map[string]string, key, value string) error {
	if _, ok := values[key]; ok {
		return errors.New("duplicate key in comma-separated list property: " + key)
	}
	p := s[key]
	if p != nil && p.Alias != "" {
		if p.KeyAlias != "" {
			if _, ok := values[p.KeyAlias]; ok {
				return fmt.Errorf("key alias '%s' is already defined", p.KeyAlias)
			}
			values[p.KeyAlias] = key
		}
		key = p.Alias
		p = s[key]
		if _, ok := values[key]; ok {
			return fmt.Errorf("key '%s' is already defined (via alias)", key)
		}
	}
	if p == nil {
		return errors.New("invalid key in comma-separated list property: " + key)
	}
	values[key] = p.boolean(value)
	return nil
}

// value adds a value without key.
func (s Properties) value(values map[string]string, value string) error {
	key := s.defaultKey()
	if key == "" {
		return errors.New("value without key, but schema does not define a default key")
	}
	if values[key] != "" {
		return errors.New("duplicate key in comma-separated list property: " + key)
	}
	values[key] = s[key].boolean(value)
	return nil
}

func (s Properties) defaultKey() string {
	for key, p := range s {
		if p.DefaultKey {
			return key
		}
	}
	return ""
}

// boolean returns 0 or 1 for the words of a boolean, and other texts unchanged.
func (p *Property) boolean(text string) string {
	if p.Type != "boolean" {
		return text
	}
	switch strings.ToLower(text) {
	case "1", "on", "yes", "true":
		return "1"
	case "0", "off", "no", "false":
		return "0"
	}
	return text
}
