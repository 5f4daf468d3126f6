package schema

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CheckResult checks the data of a response: the types of values, and that no
// required field is missing. Fields that are not in the schema are allowed, as
// there. Values are those of a decoder with UseNumber.
func (o *Operation) CheckResult(data any) error {
	found := problems{}
	if o.Returns != nil {
		found.result("data", o.Returns, data)
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("%s %s: %w", o.Method, o.Path, &Error{Message: "the response does not match the schema\n", Errors: found})
}

// result checks a value of a response.
func (f problems) result(path string, p *Property, value any) {
	isAny := p.Type == "" || p.Type == "any"
	switch {
	case value == nil && !isAny && p.Type != "null" && !p.Optional:
		f.addf(path, "is missing")
		return
	case value != nil && p.Type == "null":
		f.addf(path, "is not null")
		return
	case value == nil || !isAny && !f.typed(path, p, value):
		return
	}
	f.parts(path, p, value)
}

// parts checks the elements or fields of a value of a response.
func (f problems) parts(path string, p *Property, value any) {
	switch v := value.(type) {
	case []any:
		for i := range v {
			if p.Items != nil {
				f.result(fmt.Sprintf("%s[%d]", path, i), p.Items, v[i])
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(p.Properties)) {
			if child := p.Properties[name]; !strings.HasSuffix(name, "[n]") && child.Alias == "" {
				f.result(path+"."+name, child, v[name])
			}
		}
	}
}
