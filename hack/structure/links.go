package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

const module = "github.com/nova-platform/cluster-api-provider-nova/"

// independent are the managers that work with every infrastructure provider.
var independent = []string{"cmd/nova-bootstrap", "cmd/nova-control-plane", "cmd/nova-addon"}

// infrastructure are the folders that an independent manager must not link.
var infrastructure = []string{"api/infrastructure/", "providers/"}

// shared are the folders in providers that are not a provider.
var shared = []string{"hypervisor", "kit", "registry"}

// listImports returns the imports of the product's packages, and of those that
// the independent managers link.
func listImports(ctx context.Context) (map[string][]string, error) {
	args := []string{"list", "-deps", "-json=ImportPath,Imports"}
	for _, root := range roots {
		args = append(args, "./"+root+"/...")
	}
	command := exec.CommandContext(ctx, "go", args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("listing linked packages: %w", err)
	}
	imports := map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return imports, nil
		case err != nil:
			return nil, fmt.Errorf("reading linked packages: %w", err)
		}
		imports[p.ImportPath] = p.Imports
	}
}

// linkProblems returns a message for each independent manager that links
// infrastructure.
func linkProblems(imports map[string][]string) (problems []string) {
	for _, manager := range independent {
		if _, found := imports[module+manager]; !found {
			problems = append(problems, manager+" is not a package: its links cannot be checked")
		}
		if chain := chainTo(imports, module+manager); chain != nil {
			problems = append(problems, fmt.Sprintf("%s must work with every infrastructure provider, but it links %s:\n    %s",
				manager, chain[len(chain)-1], strings.Join(chain, "\n    imports ")))
		}
	}
	return append(problems, driverProblems(imports)...)
}

// driverProblems returns a message for each package that imports a provider,
// unless it belongs to that provider. A provider is added in its own folders,
// so no other part of the product depends on one.
func driverProblems(imports map[string][]string) (problems []string) {
	for _, from := range slices.Sorted(maps.Keys(imports)) {
		importer := strings.TrimPrefix(from, module)
		for _, to := range imports[from] {
			path, ours := strings.CutPrefix(to, module+"providers/")
			name, _, _ := strings.Cut(path, "/")
			if !ours || slices.Contains(shared, name) || strings.HasPrefix(importer+"/", "providers/"+name+"/") ||
				importer == "cmd/nova-"+name || importer == "providers/registry" {
				continue
			}
			problems = append(problems, fmt.Sprintf("%s must not import %s: only the provider itself, its command and providers/registry do",
				importer, strings.TrimPrefix(to, module)))
		}
	}
	return problems
}

// chainTo returns the shortest chain of imports from a package to a package of
// the infrastructure, without the module's path.
func chainTo(imports map[string][]string, from string) []string {
	importer := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, to := range imports[queue[0]] {
			path, ours := strings.CutPrefix(to, module)
			if _, seen := importer[to]; seen || !ours {
				continue
			}
			importer[to] = queue[0]
			queue = append(queue, to)
			for _, folder := range infrastructure {
				if strings.HasPrefix(path+"/", folder) {
					return chain(importer, to)
				}
			}
		}
	}
	return nil
}

func chain(importer map[string]string, to string) (packages []string) {
	for ; to != ""; to = importer[to] {
		packages = append([]string{strings.TrimPrefix(to, module)}, packages...)
	}
	return packages
}
