package manifests

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
	"github.com/nova-platform/cluster-api-provider-nova/test/tools"
)

// TestFlavorsAreExplained: each has a heading of its own, and its variables
// stand there.
func TestFlavorsAreExplained(t *testing.T) {
	file := filepath.Join(tools.Root(), "docs", "flavors.md")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	headings := anchorsIn(t, file)
	flavors := []string{"topology"}
	for _, p := range registry.All() {
		provider := p.Manager()
		found, err := filepath.Glob(filepath.Join(tools.Root(), "templates", provider, "flavors", "*"))
		if err != nil || len(found) == 0 {
			t.Fatalf("%s has no flavors: %v", provider, err)
		}
		for _, path := range found {
			flavors = append(flavors, filepath.Base(path))
		}
	}
	for _, flavor := range flavors {
		if !slices.Contains(headings, flavor) {
			t.Errorf("docs/flavors.md does not explain the flavor %s", flavor)
		}
	}
	var known []string
	for _, guide := range guides {
		known = append(known, variablesIn(t, "templates", guide.provider, "cluster-template.yaml")...)
	}
	used := append(variablesIn(t, "templates", "flavors", "*", "*.yaml"), variablesIn(t, "templates", "nova-*", "cluster-template-*.yaml")...)
	for _, name := range used {
		if !slices.Contains(known, name) && !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("docs/flavors.md does not list the variable %s", name)
		}
	}
}

// TestDocumentsLinkToHeadings finds links to headings that do not exist.
// hack/verify.sh finds those to files that do not.
func TestDocumentsLinkToHeadings(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#: ]*)#([^) ]+)\)`)
	code := regexp.MustCompile("(?s)```.*?```|`[^`\n]*`")
	anchors := map[string][]string{}
	files := []string{filepath.Join(tools.Root(), "README.md")}
	for _, pattern := range []string{"*.md", "adr/*.md", "reference/conditions.md"} {
		found, err := filepath.Glob(filepath.Join(tools.Root(), "docs", filepath.FromSlash(pattern)))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			target := file
			if match[1] != "" {
				target = filepath.Join(filepath.Dir(file), filepath.FromSlash(match[1]))
			}
			if _, known := anchors[target]; !known {
				anchors[target] = anchorsIn(t, target)
			}
			if !slices.Contains(anchors[target], match[2]) {
				t.Errorf("%s points at %s#%s, and there is no such heading", filepath.Base(file), match[1], match[2])
			}
		}
	}
}

// TestDocumentsInstallTheTestedClusterAPI: clusterctl would install the newest version otherwise.
func TestDocumentsInstallTheTestedClusterAPI(t *testing.T) {
	tested := found(t, filepath.Join(tools.Root(), "go.mod"), regexp.MustCompile(`(?m)^\tsigs\.k8s\.io/cluster-api (v\S+)$`))
	for _, document := range []string{"README.md", "docs/clusterctl.md", "docs/quickstart-vsphere.md", "docs/quickstart-zvirt.md", "docs/quickstart-proxmox.md"} {
		installed := found(t, filepath.Join(tools.Root(), document), regexp.MustCompile(`clusterctl init .*--core cluster-api:(\S+)`))
		if !slices.Equal(installed, tested) {
			t.Errorf("%s installs Cluster API %v, and go.mod has %v", document, installed, tested)
		}
	}
}

// anchorsIn are the anchors of a document's headings, as GitHub makes them, and those that
// the document sets itself.
func anchorsIn(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile("(?s)```.*?```").ReplaceAll(text, nil)
	var anchors []string
	for _, match := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		plain := regexp.MustCompile(`[^\p{L}\p{N} _-]`).ReplaceAllString(strings.ToLower(match[1]), "")
		anchors = append(anchors, strings.ReplaceAll(plain, " ", "-"))
	}
	for _, match := range regexp.MustCompile(`<a id="([^"]+)">`).FindAllStringSubmatch(string(text), -1) {
		anchors = append(anchors, match[1])
	}
	return anchors
}

// TestEveryDocumentIsLinked requires that the table of documents and the navigation of the site have
// every document. Otherwise readers would not find it.
func TestEveryDocumentIsLinked(t *testing.T) {
	navigation, err := os.ReadFile(filepath.Join(tools.Root(), "hack", "site", "mkdocs.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for folder, pattern := range map[string]string{"docs": "[^R]*.md", "docs/adr": "0*.md"} {
		dir := filepath.Join(tools.Root(), filepath.FromSlash(folder))
		table, err := os.ReadFile(filepath.Join(dir, "README.md"))
		if err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(found) < 15 {
			t.Fatalf("%s has %d documents: %v", folder, len(found), err)
		}
		if folder == "docs" {
			for _, part := range []string{"reference", "catalogue"} {
				pages, err := filepath.Glob(filepath.Join(dir, part, "*.md"))
				if err != nil || len(pages) < 4 {
					t.Fatalf("%s has %d pages: %v", part, len(pages), err)
				}
				found = append(found, pages...)
			}
		}
		for _, file := range found {
			name, err := filepath.Rel(dir, file)
			if err != nil {
				t.Fatal(err)
			}
			if folder == "docs" && !strings.Contains(string(navigation), ": "+filepath.ToSlash(name)+"\n") {
				t.Errorf("hack/site/mkdocs.yml has no entry for %s: hack/site.sh fails", name)
			}
			if !regexp.MustCompile(`\]\(` + regexp.QuoteMeta(filepath.ToSlash(name)) + `[)#]`).Match(table) {
				t.Errorf("%s/README.md does not link %s", folder, name)
			}
		}
	}
}
