package boundedtemplate

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"text/template"
)

// functions are the functions of templates in addition to the language's own.
// Each counts its input before it computes a result.
type functions struct {
	budget *Budget
	parsed *template.Template
	depth  int
}

func (f *functions) all() template.FuncMap {
	return template.FuncMap{
		"checksum": f.checksum,
		"contains": f.contains,
		"default":  otherwise,
		"fail":     fail,
		"include":  f.include,
		"join":     f.join,
		"json":     f.json,
		"lower":    f.lower,
		"print":    f.print,
		"printf":   f.printf,
		"println":  f.println,
		"quote":    f.quote,
		"replace":  f.replace,
		"upper":    f.upper,
	}
}

func (f *functions) lower(text string) (string, error) {
	return strings.ToLower(text), f.budget.write(len(text))
}

func (f *functions) upper(text string) (string, error) {
	return strings.ToUpper(text), f.budget.write(len(text))
}

func (f *functions) contains(part, text string) (bool, error) {
	if err := f.budget.write(len(text)); err != nil {
		return false, err
	}
	return strings.Contains(text, part), nil
}

func (f *functions) replace(from, to, text string) (string, error) {
	if err := f.budget.write(len(text) + strings.Count(text, from)*len(to)); err != nil {
		return "", err
	}
	return strings.ReplaceAll(text, from, to), nil
}

func (f *functions) join(separator string, items []any) (string, error) {
	out := make([]string, 0, len(items))
	size := len(separator) * len(items)
	for _, item := range items {
		text := fmt.Sprint(item)
		if size += len(text); size > MaxOutput {
			break
		}
		out = append(out, text)
	}
	if err := f.budget.write(size); err != nil {
		return "", err
	}
	return strings.Join(out, separator), nil
}

// quote writes a value as a quoted string, which Go, JSON and YAML read alike.
func (f *functions) quote(value any) (string, error) {
	text := fmt.Sprintf("%q", fmt.Sprint(value))
	return text, f.budget.write(len(text))
}

func (f *functions) json(value any) (string, error) {
	data, err := json.Marshal(value)
	if err != nil {
		return "", err
	}
	return string(data), f.budget.write(len(data))
}

// checksum is a number from 1 to 2³¹-1 computed from a text, for instance for
// the serial number of a DNS zone.
func (f *functions) checksum(text string) (uint32, error) {
	sum := sha256.Sum256([]byte(text))
	return binary.BigEndian.Uint32(sum[:])>>1 | 1, f.budget.write(len(text))
}

// RefusedError is the error of a template that calls fail.
type RefusedError struct {
	// Why is the reason that the template names.
	Why string
}

// Error implements error.
func (e *RefusedError) Error() string { return e.Why }

// fail ends the template with an error for its user: a module that cannot work
// on a Cluster is refused before anything of it is written.
func fail(why string) (string, error) { return "", &RefusedError{Why: why} }

// otherwise returns value, or other if value is empty.
func otherwise(other, value any) any {
	if value == nil || value == "" || value == int64(0) || value == any(false) {
		return other
	}
	return value
}

func (f *functions) print(values ...any) (string, error) {
	if err := f.count(values); err != nil {
		return "", err
	}
	return fmt.Sprint(values...), nil
}

func (f *functions) println(values ...any) (string, error) {
	if err := f.count(values); err != nil {
		return "", err
	}
	return fmt.Sprintln(values...), nil
}

// plain matches formats whose result is not much longer than their arguments.
var plain = regexp.MustCompile(`^([^%]|%[dqstvx%])*$`)

func (f *functions) printf(format string, values ...any) (string, error) {
	if !plain.MatchString(format) {
		return "", errors.New("printf knows %d, %q, %s, %t, %v, %x and %%, without flags, widths and precisions")
	}
	if err := f.count(append(values, format)); err != nil {
		return "", err
	}
	return fmt.Sprintf(format, values...), nil
}

// count counts the length of the values as text.
func (f *functions) count(values []any) error {
	size := 0
	for _, value := range values {
		if size += len(fmt.Sprint(value)) + 1; size > MaxOutput {
			break
		}
	}
	return f.budget.write(size)
}

// maxIncludes limits the nesting of included templates.
const maxIncludes = 16

// include renders a defined template to text, so that a document of many lines
// can be quoted.
func (f *functions) include(name string, data any) (string, error) {
	if f.depth++; f.depth > maxIncludes {
		return "", fmt.Errorf("%q is included too deep", name)
	}
	defer func() { f.depth-- }()
	out := &writer{budget: f.budget}
	err := f.parsed.ExecuteTemplate(out, name, data)
	return out.text.String(), err
}
