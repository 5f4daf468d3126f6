package manifests

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/client-go/discovery"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// inline is a command within a sentence or a table.
var inline = regexp.MustCompile("`((?:kubectl|clusterctl|make) [^`]*)`")

// begins finds the program of a part of a script.
var begins = regexp.MustCompile(`^(?:(?:until|while|do|if|then|!|[A-Z_]+=\S*)\s+)*((?:kubectl|clusterctl|make) .*)$`)

// placeholders replaces a placeholder that the reader fills in.
var placeholders = strings.NewReplacer("…", "", `\|`, "|", "<", "", ">", "")

// commandsOf returns the distinct commands of a document for kubectl, clusterctl and make.
func commandsOf(text string) []string {
	var found []string
	for _, b := range blocksIn(text) {
		if b.language != "yaml" {
			found = append(found, simple(b.text)...)
		}
	}
	for _, match := range inline.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		found = append(found, simple(placeholders.Replace(match[1]))...)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// simple takes a script apart into the commands of those programs, as far as
// quotes, pipes and redirections go.
func simple(script string) []string {
	script = regexp.MustCompile(`(?m)^\s*#.*$|\s#\s.*$`).ReplaceAllString(strings.ReplaceAll(script, "\\\n", " "), "")
	var parts []string
	var part strings.Builder
	var quote rune
	escaped := false
	for _, r := range script {
		switch {
		case escaped:
			escaped = false
		case r == '\\' && quote != '\'':
			escaped = true
		case quote == 0 && strings.ContainsRune("\n;|&<>()", r):
			parts = append(parts, part.String())
			part.Reset()
			continue
		case quote == 0 && (r == '\'' || r == '"'):
			quote = r
		case r == quote:
			quote = 0
		}
		part.WriteRune(r)
	}
	var found []string
	for _, p := range append(parts, part.String()) {
		if match := begins.FindStringSubmatch(strings.TrimSpace(p)); match != nil {
			found = append(found, match[1])
		}
	}
	return found
}

var _ = Describe("commands and fields in documents", Ordered, ContinueOnFailure, func() {
	var texts map[string]string
	var schemas map[string]map[string]apiextensionsv1.JSONSchemaProps

	BeforeAll(func(ctx SpecContext) {
		installDefinitions(ctx)
		texts = documents()
		schemas = schemasOf(ctx)
	})

	It("is understood by their programs", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		env := helpEnvironment(ctx, dir)
		var refused []string
		tried := map[string]bool{}
		for file, text := range texts {
			for _, command := range commandsOf(text) {
				if tried[command] {
					continue
				}
				tried[command] = true
				if err := shell(ctx, dir, env, "set +u; "+command); err != nil {
					refused = append(refused, file+": "+err.Error())
				}
			}
		}
		Expect(refused).To(BeEmpty())
	})

	It("names kinds that there are", func() {
		known := kinds()
		for file, text := range texts {
			for _, command := range commandsOf(text) {
				for _, kind := range kindsIn(command) {
					Expect(known).To(HaveKey(strings.ToLower(kind)), "%s: %s", file, command)
				}
			}
		}
	})

	It("follows paths that there are, to conditions that there are", func(ctx SpecContext) {
		known := conditionTypes(ctx)
		followed := 0
		for file, text := range texts {
			for _, command := range commandsOf(text) {
				for _, path := range pathsIn(command) {
					followed++
					for _, kind := range kindsIn(command) {
						Expect(follows(schemas[strings.ToLower(kind)], path)).To(BeTrue(), "%s: there is no %s in a %s: %s", file, path, kind, command)
					}
				}
				for _, match := range regexp.MustCompile(`@\.type=="([^"]*)"`).FindAllStringSubmatch(command, -1) {
					if !strings.HasPrefix(match[1], addonsv1.ClusterConditionPrefix) {
						Expect(known).To(ContainElement(match[1]), "%s: %s", file, command)
					}
				}
			}
		}
		Expect(followed).To(BeNumerically(">", 8))
	})

	It("names fields that there are", func() {
		field := regexp.MustCompile("`([A-Z][A-Za-z]+)?\\.?((?:spec|status)(?:\\.[a-z][A-Za-z0-9]*)+)")
		var missing []string
		for file, text := range texts {
			if strings.HasPrefix(file, "docs/adr/") {
				continue // a decision may name rejected alternatives
			}
			for _, match := range field.FindAllStringSubmatch(text, -1) {
				found := slices.Contains(others[file], match[2])
				for kind, versions := range schemas {
					if match[1] == "" || strings.EqualFold(match[1], kind) {
						found = found || follows(versions, "."+match[2])
					}
				}
				if !found {
					missing = append(missing, file+": "+match[1]+" "+match[2])
				}
			}
		}
		Expect(missing).To(BeEmpty())
	})
})

// others are fields of kinds that the management cluster does not have.
var others = map[string][]string{
	"docs/bootstrap.md": {"spec.credentials"}, // of the workload cluster's Proxy
}

// helpEnvironment returns an environment in which programs parse their arguments and do nothing: they
// print their help, and fail if an argument is invalid. An empty word stands for an omitted
// argument.
func helpEnvironment(ctx context.Context, dir string) []string {
	GinkgoHelper()
	paths, err := tools.Paths(ctx, GinkgoWriter, "kubectl", "clusterctl")
	Expect(err).NotTo(HaveOccurred())
	gnu, err := exec.LookPath("make")
	Expect(err).NotTo(HaveOccurred())
	bin := filepath.Join(dir, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	for name, line := range map[string]string{
		"kubectl": paths["kubectl"] + ` "$@" "" --help`, "clusterctl": paths["clusterctl"] + ` "$@" "" --help`,
		"make": gnu + " --dry-run -C " + tools.Root() + ` "$@"`,
	} {
		Expect(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\nexec "+line+" >/dev/null\n"), 0o700)).To(Succeed())
	}
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "KUBECONFIG=/dev/null", "CLUSTERCTL_DISABLE_VERSIONCHECK=true")
}

// kinds are the names by which kubectl knows the resources of the API server.
func kinds() map[string]bool {
	GinkgoHelper()
	asker, err := discovery.NewDiscoveryClientForConfig(server.Config)
	Expect(err).NotTo(HaveOccurred())
	lists, err := asker.ServerPreferredResources()
	Expect(err).NotTo(HaveOccurred())
	known := map[string]bool{"all": true}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			for _, name := range append(resource.ShortNames, resource.Name, resource.SingularName, strings.ToLower(resource.Kind)) {
				known[name] = true
			}
		}
	}
	return known
}

// takers are the flags of kubectl that take the word after them.
var takers = []string{"-n", "--namespace", "-l", "-o", "--output", "-f", "-p", "--patch", "--type", "--kubeconfig", "--replicas", "--field-selector", "-L"}

// kindsIn returns the kinds that a command of kubectl is about, or none where
// it takes them from a file.
func kindsIn(command string) []string {
	words := strings.Fields(command)
	if words[0] != "kubectl" {
		return nil
	}
	var plain []string
	for i := 1; i < len(words); i++ {
		switch {
		case slices.Contains(takers, words[i]):
			i++
		case strings.HasPrefix(words[i], "-"):
		default:
			plain = append(plain, words[i])
		}
	}
	if len(plain) < 2 || !slices.Contains([]string{"get", "describe", "delete", "patch", "annotate", "label", "scale", "explain", "wait"}, plain[0]) {
		return nil
	}
	var found []string
	for word := range strings.SplitSeq(plain[1], ",") {
		name, _, _ := strings.Cut(word, "/")
		if plain[0] == "explain" {
			name, _, _ = strings.Cut(word, ".")
		}
		found = append(found, name)
	}
	return found
}

// pathsIn returns the paths that a command prints.
func pathsIn(command string) []string {
	var found []string
	if match := regexp.MustCompile(`jsonpath=['"]([^']*)['"]`).FindStringSubmatch(command); match != nil {
		within := ""
		for _, part := range regexp.MustCompile(`\{([^{}]+)\}`).FindAllStringSubmatch(match[1], -1) {
			list, ranges := strings.CutPrefix(part[1], "range ")
			switch {
			case ranges:
				within = list
				found = append(found, list)
			case part[1] == "end":
				within = ""
			case strings.HasPrefix(part[1], "."):
				found = append(found, within+part[1])
			}
		}
	}
	if match := regexp.MustCompile(`custom-columns='([^']*)'`).FindStringSubmatch(command); match != nil {
		for _, part := range regexp.MustCompile(`(?:^|,)[A-Z]+:((?:[^,\[]|\[[^\]]*\])*)`).FindAllStringSubmatch(match[1], -1) {
			found = append(found, part[1])
		}
	}
	return found
}

// step is one part of a path, with the filter of the items of a list.
var step = regexp.MustCompile(`\.([A-Za-z][\w-]*)(\[[^\]]*\])?`)

// follows reports whether a path leads to a field in any version of a kind.
// Kinds that are not definitions, and metadata, are Kubernetes' own.
func follows(versions map[string]apiextensionsv1.JSONSchemaProps, path string) bool {
	if len(versions) == 0 || strings.HasPrefix(path, ".metadata") {
		return true
	}
	for _, at := range versions {
		leads := true
		for _, part := range step.FindAllStringSubmatch(path, -1) {
			if at.Items != nil {
				at = *at.Items.Schema
			}
			if at.AdditionalProperties != nil || at.XPreserveUnknownFields != nil && *at.XPreserveUnknownFields {
				break
			}
			if at, leads = at.Properties[part[1]]; !leads {
				break
			}
		}
		if leads {
			return true
		}
	}
	return false
}

// schemasOf returns the schemas of all definitions by the names of their kinds
// and by version.
func schemasOf(ctx context.Context) map[string]map[string]apiextensionsv1.JSONSchemaProps {
	GinkgoHelper()
	var list apiextensionsv1.CustomResourceDefinitionList
	Expect(server.Client.List(ctx, &list)).To(Succeed())
	Expect(list.Items).NotTo(BeEmpty())
	found := map[string]map[string]apiextensionsv1.JSONSchemaProps{}
	for _, definition := range list.Items {
		names := definition.Spec.Names
		for _, name := range append(names.ShortNames, names.Plural, names.Singular, strings.ToLower(names.Kind)) {
			versions := map[string]apiextensionsv1.JSONSchemaProps{}
			for _, version := range definition.Spec.Versions {
				versions[version.Name] = *version.Schema.OpenAPIV3Schema
			}
			found[name] = versions
		}
	}
	return found
}

// conditionTypes are the types of conditions that this project and Cluster API
// have constants for.
func conditionTypes(ctx context.Context) []string {
	GinkgoHelper()
	core, err := tools.ModuleDir(ctx, "sigs.k8s.io/cluster-api/api")
	Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, pattern := range []string{filepath.Join(tools.Root(), "api", "*", "v1beta2", "*.go"), filepath.Join(core, "core", "v1beta2", "*.go")} {
		files, err := filepath.Glob(pattern)
		Expect(err).NotTo(HaveOccurred())
		Expect(files).NotTo(BeEmpty(), pattern)
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			Expect(err).NotTo(HaveOccurred())
			ast.Inspect(parsed, func(n ast.Node) bool {
				if spec, ok := n.(*ast.ValueSpec); ok && len(spec.Values) == 1 && strings.HasSuffix(spec.Names[0].Name, "Condition") {
					if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
						value, err := strconv.Unquote(literal.Value)
						Expect(err).NotTo(HaveOccurred(), fmt.Sprint(spec.Names[0]))
						found = append(found, value)
					}
				}
				return true
			})
		}
	}
	return found
}
