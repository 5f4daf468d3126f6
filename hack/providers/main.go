// Command providers writes the files that follow from the list of
// infrastructure providers, in providers/registry.
//
//	go run ./hack/providers write ROOT
//	go run ./hack/providers list
//
// "list" prints a line for each provider: its manager, and the prefix of its
// kinds in lower case.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nova-platform/cluster-api-provider-nova/hack/providers/files"
	"github.com/nova-platform/cluster-api-provider-nova/providers/registry"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 1 && args[0] == "list":
		for _, p := range registry.All() {
			fmt.Fprintln(os.Stdout, p.Manager(), strings.ToLower(p.Kind))
		}
	case len(args) == 2 && args[0] == "write":
		err = files.Write(args[1], registry.All())
	default:
		err = errors.New("usage: providers list | write ROOT")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "providers:", err)
		os.Exit(1)
	}
}
