package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/reporters"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

// A JUnit report and a readable report, next to the artifacts of the specs.
var _ = ReportAfterSuite("report", func(report Report) {
	Expect(os.MkdirAll(artifacts(), 0o755)).To(Succeed())
	Expect(reporters.GenerateJUnitReport(report, filepath.Join(artifacts(), "junit.xml"))).To(Succeed())
	text := summary(report)
	Expect(os.WriteFile(filepath.Join(artifacts(), "summary.md"), text, 0o644)).To(Succeed())
	_, _ = GinkgoWriter.Write(text)
})

// summary has a line for each spec: its name, its result and its duration.
func summary(report Report) []byte {
	var text bytes.Buffer
	text.WriteString("| spec | result | seconds |\n|---|---|---|\n")
	for _, spec := range report.SpecReports {
		if spec.LeafNodeType != types.NodeTypeIt {
			continue
		}
		name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), ": ")
		fmt.Fprintf(&text, "| %s | %s | %.0f |\n", name, spec.State, spec.RunTime.Seconds())
	}
	for _, figure := range facts.Figures {
		fmt.Fprintf(&text, "\n%s", figure)
	}
	text.WriteString("\n")
	return text.Bytes()
}
