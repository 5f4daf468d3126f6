package modules

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	addonsv1 "github.com/nova-platform/cluster-api-provider-nova/api/addons/v1beta2"
)

// rendered renders a set of one module.
func rendered(m addonsv1.Module) (*Rendering, error) {
	m.Name = "module"
	c := Content{Sources: []addonsv1.Source{{Name: "code", Git: addonsv1.GitSource{URL: "https://code.example/x.git"}}}, Modules: []addonsv1.Module{m}}
	return Render(c, Target{Namespace: "team", Name: "alpha", Set: "set", Origin: "team", Facts: &Facts{}})
}

// A tenant's template can neither fill the memory nor keep a worker busy.
func TestTemplateBombs(t *testing.T) {
	for name, bomb := range map[string]string{
		"Width": `{{ printf "%1000000d" 1 }}`,
		"Loop":  `{{ range 9000000000000000000 }}{{ end }}`,
		"Text":  `{{ range 9000000000000000000 }}x{{ end }}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := rendered(addonsv1.Module{Chart: &addonsv1.Chart{Name: "x", ValuesTemplate: "a: " + bomb}})
			if err == nil || !strings.HasPrefix(err.Error(), `module "module": valuesTemplate: executing template: `) {
				t.Errorf("valuesTemplate: %v", err)
			}
			_, err = rendered(addonsv1.Module{Kustomize: &addonsv1.Kustomize{Substitute: []addonsv1.Variable{{Name: "a", Value: ptr.To(bomb)}}}})
			if err == nil || !strings.HasPrefix(err.Error(), `module "module": substitute a: executing template: `) {
				t.Errorf("substitute: %v", err)
			}
		})
	}
}

// A document of 600 KiB whose aliases expand to gigabytes.
func TestAliasBomb(t *testing.T) {
	bomb := `{{ $x := "x" }}{{ range 19 }}{{ $x = print $x $x }}{{ end }}a: &a {{ quote $x }}` + "\n" +
		`b: [{{ range 20000 }}*a,{{ end }}1]`
	_, err := rendered(addonsv1.Module{Chart: &addonsv1.Chart{Name: "x", ValuesTemplate: bomb, Values: &apiextensionsv1.JSON{Raw: []byte("{}")}}})
	if err == nil || !strings.Contains(err.Error(), "aliases are not allowed") {
		t.Errorf("%.200v", err)
	}
}
