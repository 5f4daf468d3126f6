// golangci-lint with the Kubernetes API linter built in.
//
// The stock binary can load such linters only after it has built itself again.
// A static link gives one pinned, reproducible build.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/golangci/golangci-lint/v2/pkg/commands"
	"github.com/golangci/golangci-lint/v2/pkg/exitcodes"

	// Registers the linter "kubeapilinter".
	_ "sigs.k8s.io/kube-api-linter"
)

const module = "github.com/golangci/golangci-lint/v2"

func main() {
	if err := commands.Execute(buildInfo()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitcodes.Failure)
	}
}

// buildInfo names the version of the linter, not that of this module.
func buildInfo() commands.BuildInfo {
	info := commands.BuildInfo{Version: "unknown", Commit: "unknown", Date: "unknown"}
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return info
	}
	info.GoVersion = build.GoVersion
	for _, dep := range build.Deps {
		if dep.Path == module {
			info.Version = dep.Version
			info.Commit = dep.Sum
		}
	}
	return info
}
