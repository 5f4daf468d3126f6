package vsphere

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vmware/govmomi/object"
)

// anyRole is the entry of requests that any role allows: it has
// System.Anonymous, System.View and System.Read.
var anyRole = []string(nil)

// privileges are the privileges that requests need, by method of the SOAP API,
// and by the end of the path in the REST API.
var privileges = map[string][]string{
	"Login": anyRole, "Logout": anyRole, "RetrieveServiceContent": anyRole, "RetrievePropertiesEx": anyRole,
	"CreateContainerView": anyRole, "CreateListView": anyRole, "ModifyListView": anyRole, "CreatePropertyCollector": anyRole,
	"CreateFilter": anyRole, "WaitForUpdatesEx": anyRole, "FindAllByUuid": anyRole, "FindChild": anyRole, "RecommendDatastores": anyRole,
	"/cis/session": anyRole, "CurrentTime": anyRole, "?list-attached-tags-on-objects": anyRole, "?list-tags-for-category": anyRole, "GET /tagging/category": anyRole, "GET /tagging/category/{id}": anyRole, "GET /tagging/tag": anyRole,

	"CloneVM_Task": {
		"VirtualMachine.Provisioning.DeployTemplate", "VirtualMachine.Provisioning.Clone", "VirtualMachine.Inventory.CreateFromExisting",
		"VirtualMachine.Config.CPUCount", "VirtualMachine.Config.Memory", "VirtualMachine.Config.Resource", "VirtualMachine.Config.Settings",
		"VirtualMachine.Config.AdvancedConfig", "VirtualMachine.Config.AddRemoveDevice", "VirtualMachine.Config.EditDevice",
		"VirtualMachine.Config.AddNewDisk", "VirtualMachine.Config.DiskExtend", "VirtualMachine.Config.Annotation", "VirtualMachine.Interact.PowerOn",
		"Resource.AssignVMToPool", "Datastore.AllocateSpace", "Network.Assign",
	},
	"PowerOnVM_Task":                  {"VirtualMachine.Interact.PowerOn"},
	"PowerOffVM_Task":                 {"VirtualMachine.Interact.PowerOff"},
	"ShutdownGuest":                   {"VirtualMachine.Interact.PowerOff"},
	"Destroy_Task":                    {"VirtualMachine.Inventory.Delete"},
	"ReconfigVM_Task":                 {"VirtualMachine.Config.AdvancedConfig", "VirtualMachine.Config.RemoveDisk"},
	"ReconfigureComputeResource_Task": {"Host.Inventory.EditCluster"},
	"UpgradeVM_Task":                  {"VirtualMachine.Config.UpgradeVirtualHardware"},
	"CreateFolder":                    {"Folder.Create"},
	"AddCustomFieldDef":               {"Global.ManageCustomFields"},
	"SetField":                        {"Global.SetCustomField"},
	"PbmRetrieveServiceContent":       {"StorageProfile.View"},
	"ConsolidateVMDisks_Task":         {"VirtualMachine.State.RemoveSnapshot"},
	"CreateSnapshot_Task":             {"VirtualMachine.State.CreateSnapshot"},
	"RemoveAllSnapshots_Task":         {"VirtualMachine.State.RemoveSnapshot"},
	"MarkAsTemplate":                  {"VirtualMachine.Provisioning.MarkAsTemplate"},

	"?attach-tag-to-multiple-objects": {"InventoryService.Tagging.AttachTag", "InventoryService.Tagging.ObjectAttachable"},
	"?attach-multiple-tags-to-object": {"InventoryService.Tagging.AttachTag", "InventoryService.Tagging.ObjectAttachable"},
	"POST /tagging/tag":               {"InventoryService.Tagging.CreateTag"},
	"POST /tagging/category":          {"InventoryService.Tagging.CreateCategory"},
	"library":                         {"VApp.Import", "ContentLibrary.ReadStorage"},
}

// needs returns the entry of a request.
func needs(method string) ([]string, bool) {
	if list, ok := privileges[method]; ok {
		return list, true
	}
	verb, path, ok := strings.Cut(method, " ")
	if !ok {
		return nil, false
	}
	for name, list := range privileges {
		wanted, end, hasVerb := strings.Cut(name, " ")
		if hasVerb && wanted == verb && strings.HasSuffix(path, end) || !hasVerb && strings.ContainsAny(name, "/?") && strings.HasSuffix(path, name) {
			return list, true
		}
	}
	return nil, false
}

// Every request that the packages can send needs privileges that the guide
// lists, and the guide lists no other privileges.
func TestGuideListsThePrivileges(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob("*.go")
	g.Expect(err).NotTo(HaveOccurred())
	inside, err := filepath.Glob(filepath.Join("*", "*.go"))
	g.Expect(err).NotTo(HaveOccurred())
	files = append(files, inside...)
	called := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		g.Expect(err).NotTo(HaveOccurred())
		ast.Inspect(parsed, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				if from, ok := s.X.(*ast.Ident); ok && strings.HasSuffix(from.Name, "methods") {
					called[s.Sel.Name] = true
				}
			}
			return true
		})
	}
	g.Expect(len(called)).To(BeNumerically(">", 15), "the packages call vCenter by way of methods")
	var needed []string
	for method := range called {
		list, known := needs(method)
		g.Expect(known).To(BeTrue(), "the privileges for %s are not listed", method)
		needed = append(needed, list...)
	}
	for method, list := range privileges {
		if strings.ContainsAny(method, "/?") || method == "library" {
			needed = append(needed, list...)
		}
	}

	slices.Sort(needed)
	g.Expect(guidePrivileges(g)).To(Equal(slices.Compact(needed)))
}

// guidePrivileges returns the privileges that the guide lists.
func guidePrivileges(g Gomega) []string {
	return listed(guideSection(g), regexp.MustCompile("`([A-Z][A-Za-z]+(?:\\.[A-Z][A-Za-z]+)+)`"))
}

// privilegesOfEveryMachine returns those that no field of a machine adds.
func privilegesOfEveryMachine(g Gomega) []string {
	section, _, found := strings.Cut(guideSection(g), "\nSome fields need more privileges")
	g.Expect(found).To(BeTrue())
	return listed(section, regexp.MustCompile("`([A-Z][A-Za-z]+(?:\\.[A-Z][A-Za-z]+)+)`"))
}

// quickStartRoles returns the privileges of both roles of the quick start.
func quickStartRoles(g Gomega) []string {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "quickstart-vsphere.md"))
	g.Expect(err).NotTo(HaveOccurred())
	commands := regexp.MustCompile(`(?m)^role\.create (?:.*\\\n)*.*$`).FindAllString(string(text), -1)
	g.Expect(commands).To(HaveLen(2))
	return listed(strings.Join(commands, " "), regexp.MustCompile(`\b([A-Z][A-Za-z]+(?:\.[A-Z][A-Za-z]+)+)`))
}

func guideSection(g Gomega) string {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "vsphere.md"))
	g.Expect(err).NotTo(HaveOccurred())
	_, section, found := strings.Cut(string(text), "### Least privileges")
	g.Expect(found).To(BeTrue())
	section, _, _ = strings.Cut(section, "\n### ")
	return section
}

// listed returns the first groups of all matches, each once.
func listed(text string, pattern *regexp.Regexp) []string {
	var found []string
	for _, match := range pattern.FindAllStringSubmatch(text, -1) {
		found = append(found, match[1])
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// The privileges exist in vCenter: its administrators have all privileges.
func TestPrivilegesExist(t *testing.T) {
	b := newBed(t)
	roles, err := object.NewAuthorizationManager(b.admin().Client).RoleList(b.ctx())
	b.Expect(err).NotTo(HaveOccurred())
	admin := roles.ByName("Admin")
	b.Expect(admin).NotTo(BeNil())
	b.Expect(len(admin.Privilege)).To(BeNumerically(">", 200))
	for method, list := range privileges {
		for _, id := range list {
			b.Expect(admin.Privilege).To(ContainElement(id), method)
		}
	}
}
