package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
)

// sources are the packages that declare conditions, in the order of the page.
// internal/fence and internal/workload declare conditions and events of objects of several
// groups.
var sources = []string{
	"api/controlplane/v1beta2", "api/bootstrap/v1beta2", "api/infrastructure/v1beta2",
	"api/infrastructure/vsphere/v1beta2", "api/infrastructure/zvirt/v1beta2", "internal/fence", "api/addons/v1beta2", "internal/workload",
}

// clusterAPI is the package whose constants are the values of some of ours.
const clusterAPI = "sigs.k8s.io/cluster-api/api/core/v1beta2"

// block is a block of constants.
type block struct {
	// file is the path of the file, from the root of the repository.
	file string
	// group has the first two elements of the path: all packages of an API group
	// have the same.
	group string
	// kinds are the kinds of the objects. They are missing in a block that conditions
	// have in common, which has a title.
	kinds []string
	title string
	// of are the types of the conditions. They are missing in a block of events.
	of         []string
	conditions []constant
	reasons    []constant
}

// constant is a condition or a reason.
type constant struct {
	name, value, doc string
	// action is the next step of the user.
	action string
}

var (
	own    = regexp.MustCompile(`^((?:\w+'s(?:, | and )?)+) (.+) conditions? and corresponding reasons\.`)
	common = regexp.MustCompile(`^([^:]+): reasons of (\S+(?:(?:, | and )\S+)*)\.(?: |$)`)
	events = regexp.MustCompile(`^((?:\w+'s(?:, | and )?)+) events\.`)
	listed = regexp.MustCompile(`, | and `)

	conditionName = regexp.MustCompile(`Condition(Type|Prefix)?$`)
	reasonName    = regexp.MustCompile(`Reason$`)
)

// read returns the blocks of all sources in the order of the page.
func read(root string) ([]block, error) {
	known, err := valuesOf(root, clusterAPI)
	if err != nil {
		return nil, err
	}
	var all []block
	var problems []error
	for _, source := range sources {
		files, err := filepath.Glob(filepath.Join(root, source, "*.go"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s has no Go files: %w", source, err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
			if err != nil {
				return nil, err
			}
			for _, decl := range file.Decls {
				group, ok := decl.(*ast.GenDecl)
				if !ok || group.Tok != token.CONST {
					continue
				}
				b, err := readBlock(group, known)
				if err != nil {
					problems = append(problems, fmt.Errorf("%s/%s: %w", source, filepath.Base(path), err))
				}
				if b != nil {
					b.file = source + "/" + filepath.Base(path)
					b.group = groupOf(source)
					all = merge(all, *b)
				}
			}
		}
	}
	return sorted(all), errors.Join(problems...)
}

// merge adds a block. Events of the same kinds become one block.
func merge(all []block, b block) []block {
	same := func(o block) bool { return len(o.of) == 0 && len(b.of) == 0 && slices.Equal(o.kinds, b.kinds) }
	if i := slices.IndexFunc(all, same); i >= 0 {
		all[i].reasons = append(all[i].reasons, b.reasons...)
		return all
	}
	return append(all, b)
}

// groupOf returns the first two elements of the path of a source.
func groupOf(source string) string {
	return strings.Join(strings.SplitN(source, "/", 3)[:2], "/")
}

// sorted orders the blocks of a group by kind, in the order of the kinds' first
// blocks, with the summary condition of a kind first. Blocks without a condition of
// their own come last.
func sorted(all []block) []block {
	var kinds []string
	for _, b := range all {
		kinds = append(kinds, b.group+strings.Join(b.kinds, ","))
	}
	rank := func(b block) int {
		r := 3 * slices.Index(kinds, b.group+strings.Join(b.kinds, ","))
		switch {
		case len(b.kinds) == 0 || len(b.of) == 0:
			return r + 2 + 3*len(all)
		case b.of[0] == "Ready" || b.of[0] == "Available":
			return r
		default:
			return r + 1
		}
	}
	groups := make([]string, len(sources))
	for i, source := range sources {
		groups[i] = groupOf(source)
	}
	slices.SortStableFunc(all, func(a, b block) int {
		return cmp.Or(slices.Index(groups, a.group)-slices.Index(groups, b.group), rank(a)-rank(b))
	})
	return all
}

// readBlock returns nil for a block without conditions and reasons. A reason outside of a
// block that names its condition is an error.
func readBlock(group *ast.GenDecl, known map[string]string) (*block, error) {
	b := &block{}
	var problems []error
	for _, spec := range group.Specs {
		if value, ok := spec.(*ast.ValueSpec); ok {
			problems = append(problems, b.add(value, known))
		}
	}
	if len(b.reasons)+len(b.conditions) == 0 {
		return nil, errors.Join(problems...)
	}
	problems = append(problems, b.place(strings.Join(strings.Fields(group.Doc.Text()), " ")))
	return b, errors.Join(problems...)
}

// add adds a constant to the block if it is a condition or a reason.
func (b *block) add(spec *ast.ValueSpec, known map[string]string) error {
	c := constant{name: spec.Names[0].Name}
	isReason := reasonName.MatchString(c.name)
	if !isReason && !conditionName.MatchString(c.name) {
		return nil
	}
	var err error
	if c.value, err = valueOf(spec, known); err != nil {
		return err
	}
	if isReason {
		err = c.explain(spec.Doc.Text())
		b.reasons = append(b.reasons, c)
		return err
	}
	c.doc = strings.Join(strings.Fields(spec.Doc.Text()), " ")
	b.conditions = append(b.conditions, c)
	if !strings.HasPrefix(c.doc, c.name+" is ") && !strings.HasPrefix(c.doc, c.name+" repeats ") {
		return fmt.Errorf("the comment of %s has to begin with %q", c.name, c.name+" is")
	}
	return nil
}

// place reads the kinds and conditions from the comment of the block.
func (b *block) place(comment string) error {
	if found := own.FindStringSubmatch(comment); found != nil {
		b.kinds, b.of = kindsIn(found[1]), listed.Split(found[2], -1)
	} else if found := events.FindStringSubmatch(comment); found != nil {
		b.kinds = kindsIn(found[1])
	} else if found := common.FindStringSubmatch(comment); found != nil {
		b.title, b.of = found[1], listed.Split(found[2], -1)
	} else {
		return fmt.Errorf("the comment of the block of %s does not name the condition of its reasons: it has to begin as in %q",
			slices.Concat(b.conditions, b.reasons)[0].name, "NovaConfig's Ready condition and corresponding reasons.")
	}
	for _, c := range b.conditions {
		if !slices.ContainsFunc(b.of, func(of string) bool { return strings.HasPrefix(of, c.value) }) {
			return fmt.Errorf("%s is %q, which the comment of its block does not name", c.name, c.value)
		}
	}
	return nil
}

// kindsIn returns the kinds that a comment names.
func kindsIn(text string) (kinds []string) {
	for _, kind := range listed.Split(strings.ReplaceAll(text, "'s", ""), -1) {
		every, infrastructure := strings.CutPrefix(kind, "Infrastructure")
		if !infrastructure {
			kinds = append(kinds, kind)
			continue
		}
		for _, p := range registry.All() {
			kinds = append(kinds, p.Kind+every)
		}
	}
	return kinds
}

// explain splits the comment of a reason.
func (c *constant) explain(comment string) error {
	text, ok := strings.CutPrefix(comment, c.name+": ")
	if !ok {
		return fmt.Errorf("the comment of %s has to begin with %q", c.name, c.name+": ")
	}
	cause, action, ok := strings.Cut(text, "\n\nAction: ")
	c.doc, c.action = strings.Join(strings.Fields(cause), " "), strings.Join(strings.Fields(action), " ")
	if !ok || c.action == "" || !strings.ContainsAny(c.action[len(c.action)-1:], ".?") {
		return fmt.Errorf("the comment of %s has no paragraph %q with the next step of the user", c.name, "Action: ….")
	}
	return nil
}

// valueOf returns the value of a constant: a string, or a constant of Cluster API.
func valueOf(spec *ast.ValueSpec, known map[string]string) (string, error) {
	if len(spec.Values) == 1 {
		switch value := spec.Values[0].(type) {
		case *ast.BasicLit:
			return strconv.Unquote(value.Value)
		case *ast.SelectorExpr:
			if text, ok := known[value.Sel.Name]; ok {
				return text, nil
			}
		}
	}
	return "", fmt.Errorf("the value of %s is neither a string nor a constant of Cluster API", spec.Names[0].Name)
}

// valuesOf returns the string constants of a package by name.
func valuesOf(root, path string) (map[string]string, error) {
	list := exec.CommandContext(context.Background(), "go", "list", "-f", "{{.Dir}}", path)
	list.Dir = root
	dir, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("finding %s: %w", path, err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "*.go"))
	if err != nil || len(files) == 0 {
		return nil, fmt.Errorf("%s has no Go files: %w", path, err)
	}
	values := map[string]string{}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			return nil, err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 {
				if literal, ok := spec.Values[0].(*ast.BasicLit); ok && literal.Kind == token.STRING {
					values[spec.Names[0].Name], _ = strconv.Unquote(literal.Value)
				}
			}
			return true
		})
	}
	return values, nil
}
